package policy

import (
	"math"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/plan"
	"dynmo/src/plan/search"
	"dynmo/src/profile"
)

// probation watches whether the last move made steps faster. Something that no layer's cost
// shows may have made them slower.
type probation struct {
	Steps  []float64 `json:"steps"`            // seconds of the newest undisturbed steps in the present layout
	Fresh  bool      `json:"fresh"`            // the next step is the first in the present layout
	Before *earlier  `json:"before,omitempty"` // the layout before the last move; nil once the move has been judged
	Slow   []float64 `json:"slow,omitempty"`   // by stage: slowness of its ranks in Steps, the fastest is 1; nil: all are alike
	Rest   int       `json:"rest"`             // steps for which layers still stay, after the last move was undone or refused

	Refused bool `json:"refused,omitempty"` // the last move was refused
}

// earlier is the layout before a move, with its steps.
type earlier struct {
	Layout   layout.Layout `json:"layout"`
	Steps    []float64     `json:"steps"`
	Expected float64       `json:"expected"` // seconds of a step, simulated on the costs as they were
}

const (
	// kept steps before a move are compared with tried steps after the move.
	kept, tried = 16, 8
	// otherPace is the factor on a rank's speed that makes its earlier steps meaningless.
	otherPace = 1.15
)

// recordStep adds a step in the present layout.
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

// start records that layers are about to leave layout from, whose steps were expected to
// take some seconds. The next steps decide whether the move is kept.
func (t *probation) start(from layout.Layout, expected float64) {
	steps := t.Steps
	*t = probation{Fresh: true, Slow: t.Slow}
	if len(steps) >= tried {
		t.Before = &earlier{from, steps, expected}
	}
}

// reason returns why layers stay while Rest counts down.
func (t *probation) reason() plan.Kept {
	if t.Refused {
		return plan.KeptRefused
	}
	return plan.KeptUndone
}

// NoteRefusal leaves layers where they are for a while.
func (b *balancer) NoteRefusal() {
	b.Probation = probation{Fresh: true, Slow: b.Probation.Slow, Rest: horizon, Refused: true}
	b.Decided, b.Moved = false, false
}

// undo returns the layout before the last move if steps like s have surely become slower since:
// by more than noise, and by more than the layers' costs explain.
func (t *probation) undo(s *search.Step) (layout.Layout, bool) {
	if t.Before == nil || len(t.Steps) < tried {
		return s.Present, false
	}
	b := t.Before
	t.Before = nil
	if !b.Layout.SameRanks(s.Present) || s.By != balance.ByTime || !s.Fits(b.Layout) {
		return s.Present, false
	}
	before, noise := lowerHalf(b.Steps)
	after, more := lowerHalf(t.Steps)
	// A move may make the pipeline slower if replicas then sum gradients earlier.
	before *= max(s.Makespan(b.Layout), s.Makespan(s.Present)) / b.Expected
	if !(after/before-1 > surelySaved+certainty*math.Hypot(noise, more)) {
		return s.Present, false
	}
	*t = probation{Fresh: true, Slow: t.Slow, Rest: horizon}
	return b.Layout, true
}

// lowerHalf returns the mean of the lower half of steps and its relative standard error.
func lowerHalf(steps []float64) (seconds, deviation float64) {
	list := append([]float64(nil), steps...)
	cost.Halve(list)
	seconds = cost.LowerHalf(list)
	return seconds, cost.LowerHalfError(list) / seconds
}
