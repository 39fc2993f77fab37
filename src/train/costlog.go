package train

import (
	"slices"

	"dynmo/src/cost"
)

// longest is how many steps a stretch of costs has at most: a drift within a
// phase that nobody announced stays visible, and a file of costs small.
const longest = 64

// costLog gathers what consecutive steps cost as long as neither the model nor
// the layout changes, and tells it as one stretch: medians over its steps.
type costLog struct {
	stretch cost.Stretch
	tables  []cost.Table // of its steps
	spans   []float64    // their makespans
	change  string       // what changes the model before the next step
}

// changed says that the model changes before the next step, and how.
func (l *costLog) changed(what string) { l.change = what }

// add adds a step. It returns the stretch before it, if the step begins a new
// one.
func (l *costLog) add(step int, t cost.Table, run cost.Run) (done cost.Stretch, ok bool) {
	same := len(l.tables) > 0 && l.change == "" && len(l.tables) < longest &&
		l.stretch.Run.Cuts.Equal(run.Cuts) && l.stretch.Run.Schedule == run.Schedule
	if !same {
		done, ok = l.take()
		l.stretch = cost.Stretch{Step: step, Change: l.change, Run: &run}
		l.change = ""
	}
	l.tables, l.spans = append(l.tables, t), append(l.spans, run.Makespan)
	return done, ok
}

// take returns the stretch that has been gathered and begins anew.
func (l *costLog) take() (cost.Stretch, bool) {
	if len(l.tables) == 0 {
		return cost.Stretch{}, false
	}
	s := l.stretch
	s.Steps = len(l.tables)
	s.Table = l.tables[s.Steps-1]
	s.Layers = slices.Clone(s.Layers)
	for i := range s.Layers {
		at := &s.Layers[i]
		at.Forward = median(l.tables, func(t cost.Table) float64 { return t.Layers[i].Forward })
		at.BackwardInput = median(l.tables, func(t cost.Table) float64 { return t.Layers[i].BackwardInput })
		at.BackwardWeight = median(l.tables, func(t cost.Table) float64 { return t.Layers[i].BackwardWeight })
	}
	s.Run.Makespan = median(l.spans, func(x float64) float64 { return x })
	l.tables, l.spans = nil, nil
	return s, true
}

// median returns the middle of a number of each item, the mean of the middle
// two if their number is even.
func median[T any](items []T, of func(T) float64) float64 {
	v := make([]float64, len(items))
	for i, item := range items {
		v[i] = of(item)
	}
	slices.Sort(v)
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}
