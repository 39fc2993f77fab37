package sim

import (
	"math"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

func do(op schedule.Op, microbatch int) schedule.Instr {
	return schedule.Instr{Op: op, Microbatch: microbatch}
}

// plain returns a schedule of a kind that needs no costs.
func plain(t *testing.T, kind schedule.Kind, stages, microbatches int) schedule.Schedule {
	t.Helper()
	s, err := schedule.New(kind, stages, 1, microbatches)
	expect.OK(t, err)
	return s
}

// lists returns a schedule of one microbatch, with one chunk on each stage.
func lists(l ...[]schedule.Instr) schedule.Schedule {
	return schedule.Schedule{Map: partition.Line(len(l)), Microbatches: 1, Lists: l}
}

func equal(n int, s cost.Stage) []cost.Stage {
	list := make([]cost.Stage, n)
	for i := range list {
		list[i] = s
	}
	return list
}

// TestEqualStages: GPipe and 1F1B take (M+P-1)·(f+i+w) for any f, i and w.
func TestEqualStages(t *testing.T) {
	for _, kind := range []schedule.Kind{schedule.KindGPipe, schedule.Kind1F1B} {
		for _, stages := range []int{1, 2, 5, 8} {
			for _, m := range []int{1, 4, 24} {
				s := cost.Stage{Forward: 1, Input: 2, Weight: 0.5}
				want := float64(m+stages-1) * 3.5
				if got := Makespan(plain(t, kind, stages, m), equal(stages, s)); math.Abs(got-want) > 1e-12 {
					t.Errorf("%s, %d stages, %d microbatches: %v, want %v", kind, stages, m, got, want)
				}
			}
		}
	}
}

// TestByHand has two stages, f = 1 and 2, b = 2 and 1, and two microbatches of 1F1B.
//
//	stage 0: F0 0-1  F1 1-2                B0 4-6  B1 7-9
//	stage 1:         F0 1-3  B0 3-4  F1 4-6  B1 6-7
func TestByHand(t *testing.T) {
	got := Makespan(plain(t, schedule.Kind1F1B, 2, 2), []cost.Stage{{Forward: 1, Input: 1, Weight: 1}, {Forward: 2, Input: 1}})
	if got != 9 {
		t.Errorf("makespan %v, want 9", got)
	}
}

// TestSplitBackward: with W after I the stage before can continue earlier.
func TestSplitBackward(t *testing.T) {
	costs := equal(2, cost.Stage{Forward: 1, Input: 1, Weight: 1})
	b := []schedule.Instr{do(schedule.F, 0), do(schedule.B, 0)}
	iw := []schedule.Instr{do(schedule.F, 0), do(schedule.I, 0), do(schedule.W, 0)}
	if a, b := Makespan(lists(b, b), costs), Makespan(lists(iw, iw), costs); a != 6 || b != 5 {
		t.Errorf("makespans %v and %v, want 6 and 5", a, b)
	}
}

func TestDeadlockPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	f, b := do(schedule.F, 0), do(schedule.B, 0)
	Makespan(lists([]schedule.Instr{b, f}, []schedule.Instr{f, b}), equal(2, cost.Stage{Forward: 1, Input: 1, Weight: 1}))
}

// TestDispatch: a stage needs the dispatch time between two instructions, unless it waits for
// longer anyway.
func TestDispatch(t *testing.T) {
	s := plain(t, schedule.Kind1F1B, 2, 2)
	costs := equal(2, cost.Stage{Forward: 1, Input: 1})
	for dispatch, want := range map[float64]float64{
		0:    6,    // fill, and two microbatches of two
		0.25: 6.75, // three dispatches of stage 1, between F0 B0 F1 B1; those of stage 0 are hidden
	} {
		got := Run(Step{Schedule: s, Costs: costs, Dispatch: dispatch}).Makespan()
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("dispatch %v: makespan %v, want %v", dispatch, got, want)
		}
	}
}
