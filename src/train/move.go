package train

import (
	"fmt"

	"dynmo/src/elastic"
	"dynmo/src/fault"
	"dynmo/src/layout"
	"dynmo/src/migrate"
	"dynmo/src/model"
	"dynmo/src/profile"
)

// moveWithin takes layers to where the next layout has them, on the same ranks. Collective
// over the stages of a replica.
func (r *Rank) moveWithin(w elastic.World, present, next layout.Layout, s *model.Stage, behind bool, reached func(fault.Phase)) (*model.Stage, *migrate.Rest, error) {
	p, err := migrate.Within(present.Owners(), next.Owners(), w.Stages.Rank(), s.Config)
	if err != nil {
		return s, nil, err
	}
	p.Alike, p.Reached = w.All, reached
	s, rest, err := migrate.Begin(w.Stages, p, r.x, s, behind)
	if err == nil && !behind {
		err = rest.Settle()
	}
	return s, rest, err
}

// moveAcross takes layers to where the next layout has them, on other ranks, and makes their
// world. Collective over the present world.
func (r *Rank) moveAcross(w elastic.World, m profile.Measurement, present, next layout.Layout, s *model.Stage, reached func(fault.Phase)) (elastic.World, *model.Stage, *migrate.Rest, error) {
	own := func(layer int) bool { return m.Layers[layer].Bytes.Own > 0 }
	p, err := migrate.Between(present, next, w.All.Rank(), s.Config, own)
	if err != nil {
		return w, s, nil, err
	}
	p.Reached, p.Lacking = reached, r.lacks(present.World(w.All.Rank()), m, next)
	s, rest, err := migrate.Begin(w.All, p, r.x, s, false)
	if err == nil {
		err = rest.Settle()
	}
	if err != nil {
		return w, s, nil, err
	}
	began := r.Device.Clock().Now()
	if w, err = w.Resize(present, next); err != nil {
		return w, s, nil, fmt.Errorf("resize: %w", err)
	}
	r.resized = r.Device.Clock().Now() - began
	if reached != nil {
		reached(fault.Resized)
	}
	return w, s, rest, nil
}
