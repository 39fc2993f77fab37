package policy

import (
	"errors"
	"fmt"

	"dynmo/src/balance"
)

// Reference is what the model was before it first changed: what packing goes by.
type Reference struct {
	Seconds  float64 `json:"reference"`                    // of a step on the stages that the run began with, at its best cuts; 0: not known
	Makespan float64 `json:"reference_makespan,omitempty"` // likewise, of its pipeline alone
	Load     float64 `json:"load,omitempty"`               // of all its layers, in what the balancer goes by
	Error    float64 `json:"load_error,omitempty"`         // relative standard error of that load
	Seen     int     `json:"seen,omitempty"`               // steps that costs were known in; from wellKnown on nothing is added
}

// wellKnown is from how many steps on costs get no surer.
const wellKnown = 64

// seldom is after how many steps the reference is no longer noted every time.
const seldom = 16

// check returns an error unless the numbers may be a model's.
func (d Reference) check() error {
	for field, x := range map[string]float64{"reference": d.Seconds, "reference_makespan": d.Makespan, "load": d.Load, "load_error": d.Error} {
		if !(x >= 0 && x <= mostSeconds) {
			return fmt.Errorf("%s: %v, want 0 to %g", field, x, float64(mostSeconds))
		}
	}
	if d.Seen < 0 || d.Seen > wellKnown {
		return fmt.Errorf("seen: %d, want 0 to %d", d.Seen, wellKnown)
	}
	return nil
}

// Reference returns what the balancer knows of the model before it first changed.
func (b *balancer) Reference() Reference { return b.memory.Reference }

// Refer makes the balancer go by what an earlier start of the run knew of the model
// before it first changed, maybe on other stages.
func (b *balancer) Refer(d Reference) error {
	if err := d.check(); err != nil {
		return err
	}
	if d.Seconds > 0 {
		d.Seen = wellKnown
	}
	b.memory.Reference = d
	return nil
}

// observeReference notes what the dense model takes, after each of its first steps and then as
// often as their number doubles, until it changes. Ranks count as undisturbed and equally
// fast: one that was slow for a while would let the model seem to shrink.
func (b *balancer) observeReference() error {
	d := &b.memory.Reference
	if d.Seen > 0 && b.Changed {
		d.Seen = wellKnown
	}
	if !b.planner.Config.Packs() || d.Seen >= wellKnown || !b.costs.Known() || b.Fresh && !b.costs.Sure() {
		return nil
	}
	if d.Seen++; d.Seen > seldom && d.Seen&(d.Seen-1) != 0 {
		return nil
	}
	return b.measureReference()
}

// measureReference notes what the model takes on present costs as what the dense one does, unless it
// has surely become cheaper.
func (b *balancer) measureReference() error {
	d := &b.memory.Reference
	if d.Seconds > 0 && (b.referred.Equal(b.costs) || b.hasShrunk(1)) {
		return nil
	}
	t := b.costs.Undisturbed().Table
	t.Slow = nil
	best, err := b.planner.BestLayout(t)
	if _, full := errors.AsType[*balance.MemoryError](err); full {
		return nil
	}
	if err != nil {
		return err
	}
	b.referred = b.costs
	d.Seconds, d.Makespan = b.planner.Seconds(t, best), b.planner.Makespan(t, best)
	d.Error = b.loadError()
	d.Load = total(balance.New(t, b.planner.By, b.planner.Map.Virtual(), nil, 0).Seconds)
	return nil
}

// total returns the sum of a list.
func total(list []float64) (sum float64) {
	for _, x := range list {
		sum += x
	}
	return sum
}
