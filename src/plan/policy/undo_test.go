package policy

import (
	"testing"

	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/plan"
	"dynmo/src/plan/plantest"
	"dynmo/src/profile"
	"dynmo/src/random"
	"dynmo/src/trace"
)

// steps runs a balancer for n steps. seconds gives the time of a step by its number and layout. It
// returns the layouts and the decisions.
func steps(t *testing.T, n int, costs cost.Table, change int, seconds func(step int, l layout.Layout) (float64, bool)) ([]layout.Layout, []plan.Reason) {
	t.Helper()
	a := newAsked(t, every("1", "partition"), 0)
	layouts, reasons := []layout.Layout{a.now}, []plan.Reason(nil)
	for step := range n {
		m := estimated(plantest.Chain(16, 0, 0), 0.001)
		if step >= change {
			m = estimated(costs, 0.001)
		}
		took, disturbed := seconds(step, a.now)
		m.Summary, m.Estimate.Disturbed = trace.Summary{End: took}, disturbed
		reasons = append(reasons, a.shown(m))
		layouts = append(layouts, a.now)
	}
	return layouts, reasons
}

// TestUndo: a move after which steps take longer is undone, once, and layers stay then;
// one that only seemed to be worse is not.
func TestUndo(t *testing.T) {
	const change = 20
	for _, c := range []struct {
		name      string
		after     float64 // seconds of a step in another layout than the first
		noise     float64
		disturbed bool
		undone    bool
	}{
		{"faster", 0.9, 0.02, false, false},
		{"slower", 1.2, 0.02, false, true},
		{"slower as far as noise can tell", 1.02, 0.1, false, false},
		{"disturbed", 1.5, 0.02, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			draw := random.Keyed(5)
			var first layout.Layout
			layouts, reasons := steps(t, change+60, heavy(9), change, func(step int, l layout.Layout) (float64, bool) {
				if step == 0 {
					first = l
				}
				seconds := 1 + c.noise*draw.ExpFloat64()
				if !l.Cuts.Equal(first.Cuts) {
					return c.after * seconds, c.disturbed
				}
				return seconds, false
			})
			if layouts[change+1].Cuts.Equal(first.Cuts) {
				t.Fatal("layers did not move")
			}
			moves := 0
			for i, why := range reasons {
				if !layouts[i].Cuts.Equal(layouts[i+1].Cuts) {
					moves++
				}
				if why.Undone != (c.undone && i == change+tried+1) {
					t.Errorf("step %d: %+v", i, why)
				}
			}
			last := reasons[len(reasons)-1]
			if c.undone && (moves != 2 || last.Kept != plan.KeptUndone || !layouts[len(layouts)-1].Equal(first)) || !c.undone && moves != 1 {
				t.Errorf("%d moves, at last %+v", moves, last)
			}
		})
	}
}

// TestUndoForgetsWithTheModel: steps before a change of the model tell nothing of a move
// after it.
func TestUndoForgetsWithTheModel(t *testing.T) {
	var p probation
	step := func(seconds float64, changed bool) {
		p.recordStep(profile.Measurement{Changed: changed, Summary: trace.Summary{End: seconds}})
	}
	for range kept {
		step(1, false)
	}
	step(1, true)
	p.start(layout.Layout{}, 1)
	for range 2 * tried {
		step(2, false)
	}
	if p.Before != nil || len(p.Steps) != 2*tried-1 {
		t.Errorf("%+v", p)
	}
}
