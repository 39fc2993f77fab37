package plan

import (
	"math"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/profile"
)

// probation watches whether steps got faster by the last move: what slows them down may
// be something that no layer's cost tells of.
type probation struct {
	steps  []float64 // seconds of the newest steps in the present layout in which no rank was disturbed
	fresh  bool      // the next step is the first in the present layout
	before *earlier  // the layout before the last move; nil once that has been judged
	rest   int       // steps for which layers stay, since the last move was undone
}

// earlier is a layout that was left.
type earlier struct {
	layout.Layout
	steps    []float64
	expected float64 // seconds of a step, simulated on the costs as they were
}

const (
	// kept is how many steps before a move are compared with tried steps after it.
	kept, tried = 16, 8
)

// note takes a step in the present layout.
func (t *probation) note(m profile.Measurement) {
	t.rest = max(0, t.rest-1)
	if m.Changed {
		*t = probation{fresh: true}
	}
	if t.fresh || m.Estimate.Disturbed {
		t.fresh = false
		return
	}
	t.steps = append(t.steps, m.Summary.Makespan())
	t.steps = t.steps[max(0, len(t.steps)-kept):]
}

// moves takes it that layers move from a layout.
func (t *probation) moves(from layout.Layout, expected float64) {
	steps := t.steps
	*t = probation{fresh: true}
	if len(steps) >= tried {
		t.before = &earlier{from, steps, expected}
	}
}

// undo returns the layout before the last move, if layers moved to save time and steps
// are surely slower since then: slower than noise explains, and than what layers have
// come to cost.
func (t *probation) undo(p *Planner, costs cost.Table, present layout.Layout) (layout.Layout, bool) {
	if t.before == nil || len(t.steps) < tried {
		return present, false
	}
	b := t.before
	t.before = nil
	if b.Stages() != present.Stages() || p.by != balance.ByTime || !p.fits(costs, b.Cuts, b.Schedule) {
		return present, false
	}
	before, noise := lowerHalf(b.steps)
	after, more := lowerHalf(t.steps)
	// A move may make the pipeline slower, where replicas sum gradients earlier for it.
	pipeline := p.makespan(costs, b.Cuts, b.Schedule)
	before *= max(pipeline, p.makespan(costs, present.Cuts, present.Schedule)) / b.expected
	if !(after/before-1 > surelySaved+certainty*math.Hypot(noise, more)) {
		return present, false
	}
	*t = probation{fresh: true, rest: horizon}
	return b.Layout, true
}

// lowerHalf returns the mean of the lower half of steps, and its standard error,
// relative.
func lowerHalf(steps []float64) (seconds, deviation float64) {
	list := append([]float64(nil), steps...)
	cost.Halve(list)
	seconds = cost.LowerHalf(list)
	return seconds, cost.LowerHalfError(list) / seconds
}
