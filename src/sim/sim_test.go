package sim

import (
	"math"
	"testing"

	"dynmo/src/schedule"
)

func do(op schedule.Op, microbatch int) schedule.Instr {
	return schedule.Instr{Op: op, Microbatch: microbatch}
}

func equal(n int, s Stage) []Stage {
	list := make([]Stage, n)
	for i := range list {
		list[i] = s
	}
	return list
}

// TestEqualStages: GPipe and 1F1B take (M+P-1)·(f+i+w), whatever f, i and w.
func TestEqualStages(t *testing.T) {
	for _, kind := range []schedule.Kind{schedule.KindGPipe, schedule.Kind1F1B} {
		for _, stages := range []int{1, 2, 5, 8} {
			for _, m := range []int{1, 4, 24} {
				s := Stage{Forward: 1, Input: 2, Weight: 0.5}
				want := float64(m+stages-1) * 3.5
				if got := Makespan(kind.All(stages, m), m, equal(stages, s)); math.Abs(got-want) > 1e-12 {
					t.Errorf("%s, %d stages, %d microbatches: %v, want %v", kind, stages, m, got, want)
				}
			}
		}
	}
}

// TestByHand: two stages, f = 1 and 2, b = 2 and 1, two microbatches of 1F1B.
//
//	stage 0: F0 0-1  F1 1-2                B0 4-6  B1 7-9
//	stage 1:         F0 1-3  B0 3-4  F1 4-6  B1 6-7
func TestByHand(t *testing.T) {
	lists := schedule.Kind1F1B.All(2, 2)
	got := Makespan(lists, 2, []Stage{{Forward: 1, Input: 1, Weight: 1}, {Forward: 2, Input: 1}})
	if got != 9 {
		t.Errorf("makespan %v, want 9", got)
	}
}

// TestSplitBackward: W after I lets the stage before go on earlier.
func TestSplitBackward(t *testing.T) {
	stages := []Stage{{1, 1, 1}, {1, 1, 1}}
	whole := [][]schedule.Instr{{do(schedule.F, 0), do(schedule.B, 0)}, {do(schedule.F, 0), do(schedule.B, 0)}}
	split := [][]schedule.Instr{
		{do(schedule.F, 0), do(schedule.I, 0), do(schedule.W, 0)},
		{do(schedule.F, 0), do(schedule.I, 0), do(schedule.W, 0)},
	}
	if a, b := Makespan(whole, 1, stages), Makespan(split, 1, stages); a != 6 || b != 5 {
		t.Errorf("makespans %v and %v, want 6 and 5", a, b)
	}
}

func TestDeadlockPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Makespan([][]schedule.Instr{{do(schedule.B, 0), do(schedule.F, 0)}, {do(schedule.F, 0), do(schedule.B, 0)}}, 1, equal(2, Stage{1, 1, 1}))
}
