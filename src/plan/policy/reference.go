package policy

import (
	"errors"
	"fmt"

	"dynmo/src/balance"
	"dynmo/src/cost"
)

// Reference describes a step of the dense model: of the model before any kind of dynamism changed it.
// Packing compares with it. The step is simulated on measured costs, at the best cuts over the number
// of stages with which the run began.
type Reference struct {
	Seconds  float64 `json:"reference"`                    // of the step, with the sums of gradients over replicas; 0: not known
	Makespan float64 `json:"reference_makespan,omitempty"` // seconds of the step from the first forward to the last backward
	Load     float64 `json:"load,omitempty"`               // sum over all layers: seconds for one microbatch, or parameters (balance.by)
	Error    float64 `json:"load_error,omitempty"`         // relative standard error of Load
	Seen     int     `json:"seen,omitempty"`               // steps with known costs so far, at most 64; at 64 the reference is final
}

// wellKnown is the number of steps after which costs get no more certain.
const wellKnown = 64

// seldom is the number of steps after which the reference is measured less often.
const seldom = 16

// check returns an error unless the numbers are plausible.
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

func (b *balancer) KnownReference() *Reference {
	if b.Reference.Seconds == 0 {
		return nil
	}
	known := b.Reference
	return &known
}

func (b *balancer) SetReference(d Reference) error {
	if err := d.check(); err != nil {
		return err
	}
	if d.Seconds > 0 {
		d.Seen = wellKnown
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

// measureReference makes the present costs those of the dense model, unless the model has
// surely become cheaper.
func (b *balancer) measureReference() error {
	d := &b.Reference
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
	d.Load = b.load(t)
	return nil
}

// load returns the load of all layers, by what the settings balance, without gradient sums.
func (b *balancer) load(t cost.Table) float64 {
	return total(balance.New(t, b.planner.By, b.planner.Map.Virtual(), nil, 0).Seconds)
}

// total returns the sum of a list.
func total(list []float64) (sum float64) {
	for _, x := range list {
		sum += x
	}
	return sum
}
