package balance

import (
	"math"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/partition"
)

// firstYes returns the step, counted from 1, at which a trigger first says yes.
func firstYes(t *Trigger, steps int, times func(step int) (present, best float64)) int {
	for step := 1; step <= steps; step++ {
		if t.Step(times(step)) {
			return step
		}
	}
	return 0
}

func constant(present, best float64) func(int) (float64, float64) {
	return func(int) (float64, float64) { return present, best }
}

func TestTrigger(t *testing.T) {
	for _, tc := range []struct {
		name  string
		every string
		cost  float64 // measured before; 0 for not measured
		times func(int) (float64, float64)
		want  int
	}{
		{"every 3", "3", 0, constant(1, 1), 3},
		{"auto, free so far", "auto", 0, constant(1, 0.9), 1},
		{"auto, pays after 10 s", "auto", 1, constant(1, 0.9), 10},
		{"auto, gain too small", "auto", 0, constant(1, 0.995), 0},
		{"auto, already best", "auto", 0, constant(1, 1), 0},
		{"auto, worse from step 21 on", "auto", 1, func(step int) (float64, float64) {
			if step > 20 {
				return 2, 1
			}
			return 1, 1
		}, 21},
		{"auto, nothing runs", "auto", 0, constant(0, 0), 0},
	} {
		trigger, err := NewTrigger(tc.every)
		expect.OK(t, err)
		if tc.cost > 0 {
			trigger.Balanced(tc.cost - 1e-9) // sums of tenths round
		}
		if got := firstYes(trigger, 100, tc.times); got != tc.want {
			t.Errorf("%s: first yes at step %d, want %d", tc.name, got, tc.want)
		}
	}
	for _, every := range []string{"", "0", "-1", "often", "1.5"} {
		if _, err := NewTrigger(every); err == nil {
			t.Errorf("every = %q is accepted", every)
		}
	}
}

func TestTriggerSmoothsCost(t *testing.T) {
	trigger, _ := NewTrigger("auto")
	trigger.Balanced(4)
	trigger.Balanced(8) // 6 on average
	if got := firstYes(trigger, 100, constant(2, 1)); got != 6 {
		t.Errorf("first yes at step %d, want 6", got)
	}
}

func TestStepSeconds(t *testing.T) {
	// Equal stages: (P-1+M)·load (Huang et al. 2019, GPipe).
	if got := stepSeconds([]float64{2, 2, 2, 2}, 8); got != 22 {
		t.Errorf("equal stages: %v, want 22", got)
	}
	if got := stepSeconds([]float64{1, 3}, 5); got != 16 {
		t.Errorf("unequal stages: %v, want 16", got)
	}
}

func TestHeadroom(t *testing.T) {
	p := Problem{Seconds: []float64{1, 1, 1, 1, 4}, Stages: 2}
	static, err := p.Evaluate(partition.Partition{0, 3, 5}) // 3, 5; best 4, 4
	expect.OK(t, err)
	got, err := Headroom(p, static, 3)
	if want := (8.0 + 2*5) / (8 + 2*4); err != nil || math.Abs(got-want) > 1e-15 {
		t.Errorf("headroom %v (%v), want %v", got, err, want)
	}
	best, err := Partition(p)
	expect.OK(t, err)
	if got, err := Headroom(p, best, 3); err != nil || got != 1 {
		t.Errorf("headroom of the best cuts %v (%v), want 1", got, err)
	}
}
