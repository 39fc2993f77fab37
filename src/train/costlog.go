package train

import (
	"cmp"
	"math"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/schedule"
	"dynmo/src/trace"
)

// longest is how many steps a stretch of costs has at most: a drift within a
// phase that nobody announced stays visible, and a file of costs small.
const longest = 64

// costLog gathers what consecutive steps cost as long as neither the model nor
// the layout changes, and tells it as one stretch: medians over its steps.
type costLog struct {
	stretch cost.Phase
	tables  []cost.Table      // of its steps
	runs    []cost.Run        // likewise
	order   schedule.Schedule // in which they were worked on
	model   string            // see cost.Stretch
	change  string            // what changes the model before the next step
}

// changed says that the model changes before the next step, and how.
func (l *costLog) changed(what string) { l.change = what }

// add adds a step. It returns the stretch before it, if the step begins a new
// one.
func (l *costLog) add(step int, t cost.Table, order schedule.Schedule, run cost.Run) (done cost.Phase, ok bool) {
	same := len(l.tables) > 0 && l.change == "" && len(l.tables) < longest &&
		l.runs[0].Cuts.Equal(run.Cuts) && l.order.Equal(order)
	if !same {
		done, ok = l.take()
		l.stretch, l.order = cost.Phase{Step: step, Model: l.model, Change: l.change}, order
		l.change = ""
	}
	l.tables, l.runs = append(l.tables, t), append(l.runs, run)
	return done, ok
}

// take returns the stretch that has been gathered and begins anew. How its run
// went is told by the step with the median makespan.
func (l *costLog) take() (cost.Phase, bool) {
	if len(l.tables) == 0 {
		return cost.Phase{}, false
	}
	s := l.stretch
	s.Steps = len(l.tables)
	s.Table = l.tables[s.Steps-1]
	s.Layers = slices.Clone(s.Layers)
	s.Gap = l.median(func(t cost.Table) float64 { return t.Gap })
	for i := range s.Layers {
		at := &s.Layers[i]
		at.Forward = l.median(func(t cost.Table) float64 { return t.Layers[i].Forward })
		at.BackwardInput = l.median(func(t cost.Table) float64 { return t.Layers[i].BackwardInput })
		at.BackwardWeight = l.median(func(t cost.Table) float64 { return t.Layers[i].BackwardWeight })
	}
	slices.SortStableFunc(l.runs, func(a, b cost.Run) int { return cmp.Compare(a.Makespan, b.Makespan) })
	run := l.runs[(s.Steps-1)/2]
	relative(run.Scale, s.Stages(run.Cuts, l.order.Map))
	s.Run = &run
	l.tables, l.runs = nil, nil
	return s, true
}

// median returns the median over the stretch's steps of a number in their tables.
func (l *costLog) median(of func(cost.Table) float64) float64 {
	v := make([]float64, len(l.tables))
	for i, t := range l.tables {
		v[i] = of(t)
	}
	return trace.Median(v)
}

// gap returns the seconds from one instruction of a stage to the next that its
// host takes: on every stage the tenth part of all gaps is shorter, since in the
// others it waits; of those the median.
func gap(instructions [][]trace.Span) float64 {
	var least []float64
	for _, spans := range instructions {
		var gaps []float64
		for i, s := range spans {
			if i > 0 && s.Op.Pipeline() {
				gaps = append(gaps, max(0, s.Start-spans[i-1].End))
			}
		}
		if len(gaps) > 0 {
			slices.Sort(gaps)
			least = append(least, gaps[len(gaps)/10])
		}
	}
	return trace.Median(least)
}

// relative makes seconds by virtual stage and microbatch multiples of what the
// virtual stages cost, to four digits.
func relative(rows [][]cost.Stage, costs []cost.Stage) {
	digits := func(x float64) float64 { return math.Round(1e4*x) / 1e4 }
	for v, row := range rows {
		for m, took := range row {
			times := took.Over(costs[v])
			row[m] = cost.Stage{Forward: digits(times.Forward), Input: digits(times.Input), Weight: digits(times.Weight)}
		}
	}
}
