package policy

import (
	"encoding/json"
	"fmt"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/files"
	"dynmo/src/layout"
	"dynmo/src/plan"
	"dynmo/src/plan/search"
)

// saved is a balancer in a checkpoint.
type saved struct {
	memory
	Trigger  balance.Count `json:"trigger"`
	Last     *savedNow     `json:"last,omitempty"`
	Aside    *savedSought  `json:"aside,omitempty"`
	Searched *savedSought  `json:"searched,omitempty"`
}

// savedNow is a situation in a checkpoint.
type savedNow struct {
	Costs   cost.Estimate `json:"costs"`
	Layout  layout.Layout `json:"layout"`
	Present float64       `json:"present"` // Step.PresentSeconds
	Best    float64       `json:"best"`
	Stay    *plan.Reason  `json:"stay,omitempty"`
}

// savedSought is a sought layout in a checkpoint.
type savedSought struct {
	Step   int            `json:"step"`
	Chunks int            `json:"chunks"`           // of the map on a stage
	Layout *layout.Layout `json:"layout,omitempty"` // nil: no cuts fit
}

// Save returns what the balancer knows of the steps so far, as JSON for a checkpoint.
func (b *balancer) Save() ([]byte, error) {
	s := saved{memory: b.memory, Trigger: b.trigger.Count, Aside: b.aside.save(), Searched: b.searched.save()}
	if n := b.now; n != nil && (n.best != 0 || n.stay != nil) {
		s.Last = &savedNow{n.costs, n.Present, n.PresentSeconds(), n.best, n.stay}
	}
	return json.Marshal(s)
}

// save returns a sought layout for a checkpoint, nil if it was never searched.
func (a sought) save() *savedSought {
	if a.step == 0 {
		return nil
	}
	s := &savedSought{Step: a.step, Chunks: a.of.Chunks}
	if a.Cuts != nil {
		s.Layout = &a.Layout
	}
	return s
}

// Restore sets the balancer to what Save returned before a step in the present layout. After
// an error the balancer is unchanged.
func (b *balancer) Restore(text []byte, present layout.Layout) error {
	var s saved
	if err := files.CheckKeys(text, s); err != nil {
		return err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	p, err := b.problem.Match(present)
	if err != nil {
		return err
	}
	if err := s.check(p, present); err != nil {
		return err
	}
	found, err := s.Aside.restore("aside", p, present)
	if err != nil {
		return err
	}
	searched, err := s.Searched.restore("searched", p, present)
	if err != nil {
		return err
	}
	var now *situation
	if l := s.Last; l != nil {
		if p, err = p.Match(l.Layout); err != nil {
			return fmt.Errorf("last.layout: %w", err)
		}
		now = &situation{p.Step(l.Costs.Table, l.Layout), l.Costs, l.Best, l.Stay}
	}
	b.memory, b.trigger.Count, b.aside, b.searched, b.now = s.memory, s.Trigger, found, searched, now
	return nil
}

// mostSteps and mostSeconds bound the numbers of a checkpoint. A file with larger ones is
// damaged.
const mostSteps, mostSeconds = 1 << 40, 1e12

// check returns an error unless the numbers are plausible and the layouts are p's.
func (s saved) check(p *search.Problem, present layout.Layout) error {
	t := s.Probation
	if err := s.Reference.Check(); err != nil {
		return err
	}
	for field, n := range map[string]int{"steps": s.Steps, "looks": s.Looks, "early": s.Early, "later": s.Looks - s.Early, "wait": s.Wait, "trigger.steps": s.Trigger.Steps, "probation.rest": t.Rest} {
		if n < 0 || n > mostSteps {
			return fmt.Errorf("%s: %d, want 0 to %d", field, n, mostSteps)
		}
	}
	seconds := map[string][]float64{
		"price": {s.Price}, "bound": {s.Bound}, "trigger": {s.Trigger.Excess, s.Trigger.Cost}, "probation.steps": t.Steps,
	}
	if s.Last != nil {
		layers := p.Config.Layers()
		if err := s.Last.Layout.Check(layers); err != nil {
			return fmt.Errorf("last.%w", err)
		}
		if n := len(s.Last.Costs.Layers); n != layers {
			return fmt.Errorf("last.costs: %d layers, want %d", n, layers)
		}
		seconds["last"] = []float64{s.Last.Present, s.Last.Best}
	}
	if b := t.Before; b != nil {
		seconds["probation.before"] = append([]float64{b.Expected}, b.Steps...)
		if n := len(b.Steps); n < tried || n > kept || !(b.Expected > 0) {
			return fmt.Errorf("probation.before: %d steps of %v seconds, want %d to %d of more than 0", n, b.Expected, tried, kept)
		}
		if err := p.Accepts(b.Layout, present.Ranks); err != nil {
			return fmt.Errorf("probation.before: %w", err)
		}
	}
	for stage, x := range t.Slow {
		if !(x >= 1 && x <= mostSeconds) {
			return fmt.Errorf("probation.slow: stage %d: %v, want 1 to %g", stage, x, float64(mostSeconds))
		}
	}
	for field, list := range seconds {
		for _, x := range list {
			if !(x >= 0 && x <= mostSeconds) {
				return fmt.Errorf("%s: %v, want seconds from 0 to %g", field, x, float64(mostSeconds))
			}
		}
	}
	if len(t.Steps) > kept {
		return fmt.Errorf("probation.steps: %d, want at most %d", len(t.Steps), kept)
	}
	return nil
}

// restore returns the sought layout of a checkpoint, with the name of its field.
func (s *savedSought) restore(field string, p *search.Problem, present layout.Layout) (sought, error) {
	if s == nil {
		return sought{}, nil
	}
	if s.Step < 1 || s.Step > mostSteps {
		return sought{}, fmt.Errorf("%s.step: %d, want 1 to %d", field, s.Step, mostSteps)
	}
	if s.Layout != nil {
		if err := p.Accepts(*s.Layout, present.Ranks); err != nil {
			return sought{}, fmt.Errorf("%s: %w", field, err)
		}
		return sought{*s.Layout, s.Layout.Map(), s.Step}, nil
	}
	for _, m := range p.Maps {
		if m.Chunks == s.Chunks {
			return sought{of: m, step: s.Step}, nil
		}
	}
	return sought{}, fmt.Errorf("%s: %d chunks on a stage, want %d", field, s.Chunks, p.Maps[0].Chunks)
}
