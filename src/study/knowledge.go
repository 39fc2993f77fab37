package study

import (
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/plan/search"
	"dynmo/src/profile"
)

// knowledge is what a simulated balancer knows of costs: as much after every step as the
// one of the run that recorded them did.
type knowledge struct {
	recorded profile.Series
	profiler profile.Profiler
}

// of returns what the run's steps of a phase told; nil: costs are known.
func (k *knowledge) of(phase int) []profile.Known {
	if phase >= len(k.recorded) {
		return nil
	}
	return k.recorded[phase].Known
}

// after adds to a measurement what is known after so many steps of a phase and the next.
func (k *knowledge) after(m *profile.Measurement, phase, done int, costs cost.Phase, l layout.Layout) {
	if told := k.of(phase); told != nil {
		step := told[done%len(told)]
		step.Forget = step.Forget && done < len(told)
		m.Estimate = k.profiler.Again(costs.Table, step, l)
	}
}

// even returns the seconds that the balancer predicts of a phase's step, which takes some:
// it goes by costs that noise disturbs little.
func (k *knowledge) even(seconds float64, phase int, p *search.Planner, costs cost.Phase, l layout.Layout) float64 {
	if k.of(phase) == nil {
		return seconds
	}
	t := costs.Table
	t.Dispatch = 0 // as balancers have it
	return p.Seconds(t, p.Layout(t, l.Cuts))
}
