package verdict

import (
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/record"
	"dynmo/src/schedule"
)

// TestWorthOfAResumedRun: a run that went on elsewhere is held against the layout that it
// went on with, and moved no layer by that. It may have had other microbatches there.
func TestWorthOfAResumedRun(t *testing.T) {
	order, err := schedule.New(schedule.Kind1F1B, 3, 1, worthMicrobatches/2)
	expect.OK(t, err)
	elsewhere := func(step int, resumed bool, cuts ...int) record.Phase {
		p := ran(t, step, 10, "", 2, 1, 1, 1, 1)
		p.Run.Layout = layout.New(append(partition.Partition{0}, cuts...), order, 2, layout.StageMajor)
		p.Run.Resumed = resumed
		p.Slow = nil
		return p
	}
	stayed := record.Series{ran(t, 0, 10, "", 2, 1, 1, 1, 1), elsewhere(10, true, 1, 2, 4), elsewhere(20, false, 1, 2, 4)}
	p := worthProblem(t, 4)
	w, err := Measure(p, stayed)
	expect.OK(t, err)
	if w.Moved || w.Speedup != 1 || w.Steps != 30 || w.Ceiling < 1 {
		t.Errorf("%+v, want a run that stayed", w)
	}
	m := cost.Stage{Forward: 1e-3 / 3, Input: 1e-3 / 3, Weight: 1e-3 / 3}.Seconds()
	least := 10*worthMicrobatches*2*m + 20*worthMicrobatches/2*2*m // the slowest stage has two layers
	if w.Static < least || w.Static > 1.1*least {
		t.Errorf("%v seconds, want some above %v", w.Static, least)
	}
	moved := record.Series{stayed[0], stayed[1], elsewhere(20, false, 1, 3, 4)}
	if w, err := Measure(p, moved); err != nil || !w.Moved {
		t.Errorf("%+v, %v: layers moved after the resume", w, err)
	}
}
