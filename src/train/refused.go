package train

import (
	"errors"
	"fmt"

	"dynmo/src/elastic"
	"dynmo/src/layout"
	"dynmo/src/migrate"
	"dynmo/src/model"
	"dynmo/src/plan/policy"
)

// refused makes good a move that a rank had no memory for: the run goes on in the present
// layout. The error is any other. Collective over the present world.
func (r *Rank) refused(w elastic.World, present layout.Layout, s *model.Stage, err error) (migrate.Moved, error) {
	none, ok := errors.AsType[*migrate.NoRoomError](err)
	if !ok {
		return migrate.Moved{}, err
	}
	why := Agree(w.All, none.Mine, false)
	if _, ok := errors.AsType[SharedError](why); !ok {
		return migrate.Moved{}, why
	}
	if err := r.place(w, present, s); err != nil {
		return migrate.Moved{}, fmt.Errorf("migrate: back: %w", err)
	}
	return migrate.Moved{Refused: why.Error()}, nil
}

// back takes layers back to where the present layout has them, from where the next has them
// already, since a rank has no memory for what runs its stage of that: err, of this rank or
// nil. Collective over the world, which both have.
func (r *Rank) back(w elastic.World, present, next layout.Layout, s *model.Stage, rest *migrate.Rest, err error) (*model.Stage, migrate.Moved, error) {
	if failed := rest.Settle(); failed != nil {
		return s, migrate.Moved{}, failed
	}
	s, _, failed := r.moveWithin(w, next, present, s, false, nil)
	if failed != nil {
		return s, migrate.Moved{}, fmt.Errorf("migrate: back: %w", failed)
	}
	moved, err := r.refused(w, present, s, &migrate.NoRoomError{Mine: err})
	return s, moved, err
}

// stay has the balancer know that a move which it wanted could not be had, and returns
// what its decision came to.
func (r *Rank) stay(why policy.Reason) policy.Reason {
	if b, ok := r.Balancer.(interface{ Refused() }); ok {
		b.Refused()
	}
	why.Kept, why.Pack = policy.KeptRefused, nil
	return why
}
