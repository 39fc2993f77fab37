package study

import (
	"cmp"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/plan"
)

// Cause is why layers stay where they are.
type Cause string

// Causes that layers stay.
const (
	Asked       Cause = "asked"       // the settings' balancer never moves any
	Brief       Cause = "steps"       // the run ends before the first decision
	Grain       Cause = "grain"       // layers are too coarse to be shared out better
	Ceiling     Cause = "ceiling"     // the cuts are nearly the best
	Price       Cause = "price"       // a move takes longer than it saves
	Uncertainty Cause = "uncertainty" // the gain does not last, or is not sure
)

// Stay says why a simulated run moved no layers. What follows the cause is of the
// segment in which other cuts would gain most; of runs that were not to move layers
// it is left out.
type Stay struct {
	Cause   Cause
	Step    int     // the segment's first
	Steps   int     // of the segment
	Gain    float64 // share of a step that the best cuts would save
	Moving  float64 // seconds that it takes to move there
	Pays    float64 // steps in which that is saved
	Layer   string  // the most expensive one
	Seconds float64 // of that layer, for a microbatch
	Slowest float64 // load of the slowest stage at the best cuts, likewise
	Mean    float64 // mean load of a stage, likewise
}

const (
	// littleGain is the share of a step below which cuts count as the best.
	littleGain = 0.01
	// uneven is the load of the slowest stage over the mean from which on layers are
	// called too coarse.
	uneven = 1.05
)

// Stays returns why a run of a series moved no layers, nil if it did. Errors are the
// settings'.
func (r Run) Stays(series cost.Series, o Options) (*Stay, error) {
	times, _ := r.Moves()
	switch {
	case times > 0:
		return nil, nil
	case !o.Config.Balance.Moves():
		return &Stay{Cause: Asked}, nil
	case r.Steps() < 2:
		return &Stay{Cause: Brief}, nil
	}
	worst := slices.MaxFunc(r.Segments, func(a, b Segment) int {
		return cmp.Compare(a.Plan.Bottleneck/a.Plan.Optimum, b.Plan.Bottleneck/b.Plan.Optimum)
	})
	i, found := slices.BinarySearchFunc(series, worst.Step, func(p cost.Phase, step int) int { return cmp.Compare(p.Step, step) })
	if !found {
		i-- // the phase that the segment begins in
	}
	t := series[i].Mean()
	best, err := Plan(t, o)
	if err != nil {
		return nil, err
	}
	s := Stay{Step: worst.Step, Steps: worst.Steps, Gain: max(0, 1-best.Step.Makespan()/worst.Makespan), Slowest: best.Bottleneck}
	if _, s.Moving = o.move(t, worst.Plan.Layout, best.Layout, worst.Step); s.Moving > 0 {
		s.Pays = s.Moving / (s.Gain * worst.Makespan)
	}
	for _, l := range t.Layers {
		if l.Seconds() > s.Seconds {
			s.Layer, s.Seconds = l.Name, l.Seconds()
		}
		s.Mean += l.Seconds() / float64(best.Stages())
	}
	switch {
	case s.Gain >= littleGain && (worst.Kept == plan.KeptPrice || s.Pays > float64(s.Steps)):
		s.Cause = Price
	case s.Gain >= littleGain:
		s.Cause = Uncertainty
	case s.Slowest > uneven*s.Mean:
		s.Cause = Grain
	default:
		s.Cause = Ceiling
	}
	return &s, nil
}
