package policy

import (
	"math"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/plan/search"
	"dynmo/src/profile"
)

// probation watches whether steps got faster by the last move: what slows them down may
// be something that no layer's cost tells of.
type probation struct {
	Steps  []float64 `json:"steps"`            // seconds of the newest steps in the present layout in which no rank was disturbed
	Fresh  bool      `json:"fresh"`            // the next step is the first in the present layout
	Before *earlier  `json:"before,omitempty"` // the layout before the last move; nil once that has been judged
	Slow   []float64 `json:"slow,omitempty"`   // by stage: how many times slower than the fastest its ranks were in them; nil: all are alike
	Rest   int       `json:"rest"`             // steps for which layers stay, since the last move was undone or refused

	Refused bool `json:"refused,omitempty"` // it was refused
}

// earlier is a layout that was left.
type earlier struct {
	Layout   layout.Layout `json:"layout"`
	Steps    []float64     `json:"steps"`
	Expected float64       `json:"expected"` // seconds of a step, simulated on the costs as they were
}

const (
	// kept is how many steps before a move are compared with tried steps after it.
	kept, tried = 16, 8
	// otherPace is how many times slower or faster a rank is that counts as another one.
	otherPace = 1.15
)

// recordStep takes a step in the present layout.
func (t *probation) recordStep(m profile.Measurement) {
	t.Rest = max(0, t.Rest-1)
	t.Refused = t.Refused && t.Rest > 0
	if m.Changed {
		*t = probation{Fresh: true}
	}
	if !samePaces(t.Slow, m.Slow) { // the steps so far say nothing of those to come
		t.Steps = nil
	}
	t.Slow = m.Slow
	if t.Fresh || m.Estimate.Disturbed {
		t.Fresh = false
		return
	}
	t.Steps = append(t.Steps, m.Summary.Makespan())
	t.Steps = t.Steps[max(0, len(t.Steps)-kept):]
}

// samePaces reports whether no stage's ranks are much slower or faster than they were.
func samePaces(before, now []float64) bool {
	n := max(len(before), len(now))
	for stage := range n {
		x := paceOf(now, stage) / paceOf(before, stage)
		if x > otherPace || x*otherPace < 1 {
			return false
		}
	}
	return true
}

// paceOf returns how many times slower than the fastest a stage's ranks are.
func paceOf(slow []float64, stage int) float64 {
	if stage < len(slow) {
		return slow[stage]
	}
	return 1
}

// start takes it that layers move from a layout.
func (t *probation) start(from layout.Layout, expected float64) {
	steps := t.Steps
	*t = probation{Fresh: true, Slow: t.Slow}
	if len(steps) >= tried {
		t.Before = &earlier{from, steps, expected}
	}
}

// reason returns why layers stay while they rest.
func (t *probation) reason() Kept {
	if t.Refused {
		return KeptRefused
	}
	return KeptUndone
}

// Refused says that a rank had no memory for what the last answer wanted: layers are where
// they were, and stay there for a while.
func (b *balancer) Refused() {
	b.Probation = probation{Fresh: true, Slow: b.Probation.Slow, Rest: horizon, Refused: true}
	b.Decided, b.Moved = false, false
}

// undo returns the layout before the last move, if layers moved to save time and steps
// are surely slower since then: slower than noise explains, and than what layers have
// come to cost.
func (t *probation) undo(p *search.Planner, costs cost.Table, present layout.Layout) (layout.Layout, bool) {
	if t.Before == nil || len(t.Steps) < tried {
		return present, false
	}
	b := t.Before
	t.Before = nil
	if !b.Layout.SameRanks(present) || p.By != balance.ByTime || !p.Fits(costs, b.Layout) {
		return present, false
	}
	before, noise := lowerHalf(b.Steps)
	after, more := lowerHalf(t.Steps)
	// A move may make the pipeline slower, where replicas sum gradients earlier for it.
	pipeline := p.Makespan(costs, b.Layout)
	before *= max(pipeline, p.Makespan(costs, present)) / b.Expected
	if !(after/before-1 > surelySaved+certainty*math.Hypot(noise, more)) {
		return present, false
	}
	*t = probation{Fresh: true, Slow: t.Slow, Rest: horizon}
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
