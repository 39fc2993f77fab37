package policy

import (
	"errors"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/plan"
)

// seldom is the number of steps after which the reference is measured less often.
const seldom = 16

func (b *balancer) KnownReference() *plan.Reference {
	if b.Reference.Seconds == 0 {
		return nil
	}
	known := b.Reference
	return &known
}

func (b *balancer) SetReference(d plan.Reference) error {
	if err := d.Check(); err != nil {
		return err
	}
	if d.Seconds > 0 {
		d.Seen = plan.WellKnown
	}
	b.Reference = d
	return nil
}

// observeReference measures the dense model until it first changes: after each of the first
// steps, then whenever the number of steps has doubled. Ranks count as undisturbed and
// equally fast. If a rank were slow for a while, the model would seem to shrink afterwards.
func (b *balancer) observeReference() error {
	d := &b.Reference
	if d.Seen > 0 && b.Changed {
		d.Seen = plan.WellKnown
	}
	if !b.problem.Config.Packs() || d.Seen >= plan.WellKnown || !b.now.costs.Known() || b.Fresh && !b.now.costs.Sure() {
		return nil
	}
	if d.Seen++; d.Seen > seldom && d.Seen&(d.Seen-1) != 0 {
		return nil
	}
	return b.measureReference()
}

// measureReference makes the present costs those of the dense model, unless the model has
// surely become cheaper.
func (b *balancer) measureReference() error {
	d := &b.Reference
	if d.Seconds > 0 && (b.referred.Equal(b.now.costs) || b.hasShrunk(1)) {
		return nil
	}
	t := b.now.costs.Undisturbed().Table
	t.Slow = nil
	s := b.problem.Step(t, b.now.Present)
	best, err := s.BestLayout()
	if _, full := errors.AsType[*balance.MemoryError](err); full {
		return nil
	}
	if err != nil {
		return err
	}
	b.referred = b.now.costs
	d.Seconds, d.Makespan = s.Seconds(best), s.Makespan(best)
	d.Error = b.loadError()
	d.Load = b.load(t)
	return nil
}

// load returns the load of all layers, by what the settings balance, without gradient sums.
func (b *balancer) load(t cost.Table) float64 {
	return total(balance.New(t, b.problem.By, b.now.Map.Virtual(), nil, 0).Seconds)
}

// total returns the sum of a list.
func total(list []float64) (sum float64) {
	for _, x := range list {
		sum += x
	}
	return sum
}
