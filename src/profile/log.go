package profile

import (
	"cmp"
	"math"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/trace"
)

// longest is how many steps a phase of a log has at most: a drift within a phase
// that nothing announced stays visible, and a file of costs small.
const longest = 64

// Log gathers what consecutive steps cost as long as neither the model nor the
// layout changes, and gives it as one phase: medians over its steps.
type Log struct {
	Model string // settings that the costs hold for (see cost.Phase)

	phase  Phase
	tables []cost.Table // of its steps
	runs   []Run        // likewise
	change string       // what changes the model before the next step
}

// Changed says that the model changes before the next step, and how.
func (l *Log) Changed(what string) { l.change = what }

// Add adds a step: its costs and how it went, Scale in seconds. It returns the
// phase before it, if the step begins a new one.
func (l *Log) Add(step int, t cost.Table, run Run) (done Phase, ok bool) {
	if len(l.tables) == 0 || l.change != "" || len(l.tables) == longest || !l.runs[0].Layout.Equal(run.Layout) {
		done, ok = l.Take()
		l.phase = Phase{Phase: cost.Phase{Step: step, Model: l.Model, Change: l.change}}
		l.change = ""
	}
	l.tables, l.runs = append(l.tables, t), append(l.runs, run)
	return done, ok
}

// Take returns the phase that has been gathered and begins anew. Its Run is that of
// the step with the median makespan.
func (l *Log) Take() (Phase, bool) {
	if len(l.tables) == 0 {
		return Phase{}, false
	}
	p := l.phase
	p.Steps = len(l.tables)
	p.Table = l.tables[p.Steps-1]
	p.Layers = slices.Clone(p.Layers)
	p.Dispatch = median(l.tables, func(t cost.Table) float64 { return t.Dispatch })
	for i, layer := range p.Layers {
		var steps []cost.Stage
		for _, t := range l.tables {
			steps = append(steps, t.Layers[i].Stage())
		}
		p.Layers[i] = layer.With(medians(steps))
	}
	slices.SortStableFunc(l.runs, func(a, b Run) int { return cmp.Compare(a.Makespan, b.Makespan) })
	run := l.runs[(p.Steps-1)/2]
	relate(run.Scale, p.Stages(run.Layout.Cuts, run.Layout.Map()))
	p.Run = &run
	l.tables, l.runs = nil, nil
	return p, true
}

// median returns the median of a number of each value.
func median[T any](list []T, of func(T) float64) float64 {
	v := make([]float64, len(list))
	for i, x := range list {
		v[i] = of(x)
	}
	return trace.Median(v)
}

// medians returns the median of each of the seconds.
func medians(list []cost.Stage) cost.Stage {
	return cost.Stage{
		Forward: median(list, func(s cost.Stage) float64 { return s.Forward }),
		Input:   median(list, func(s cost.Stage) float64 { return s.Input }),
		Weight:  median(list, func(s cost.Stage) float64 { return s.Weight }),
	}
}

// relate makes seconds by virtual stage and microbatch multiples of what the
// virtual stages cost, to four digits.
func relate(rows [][]cost.Stage, costs []cost.Stage) {
	digits := func(x float64) float64 { return math.Round(1e4*x) / 1e4 }
	for v, row := range rows {
		for m, took := range row {
			times := took.Over(costs[v])
			row[m] = cost.Stage{Forward: digits(times.Forward), Input: digits(times.Input), Weight: digits(times.Weight)}
		}
	}
}
