package trace

import (
	"math"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-12 }

// pipe returns the step of 1F1B over equal stages and microbatches, one layer
// each, with forward 1 s and backward 2 s: every stage idles (P-1)·3 s.
func pipe(stages, microbatches int) Step {
	step := Step{Stages: make([][]Span, stages)}
	for s := range stages {
		// Not a schedule, only its busy time: work fills the middle.
		at := float64(s)
		for m := range microbatches {
			step.Stages[s] = append(step.Stages[s],
				Span{F, s, m, at, at + 1}, Span{I, s, m, at + 1, at + 2}, Span{W, s, m, at + 2, at + 3})
			at += 3
		}
	}
	// The first stage ends last: its last backward waits for all the others'.
	last := &step.Stages[0][len(step.Stages[0])-1]
	shift := float64(3*(stages-1)+3*microbatches) - last.End
	last.Start, last.End = last.Start+shift, last.End+shift
	return step
}

func TestEqualStages(t *testing.T) {
	for _, size := range []struct{ stages, microbatches int }{{1, 1}, {4, 8}, {8, 4}} {
		p, m := float64(size.stages), float64(size.microbatches)
		step := pipe(size.stages, size.microbatches)
		if got, want := step.Makespan(), 3*(p-1+m); !near(got, want) {
			t.Errorf("%+v: makespan %v, want %v", size, got, want)
		}
		if got, want := step.BubbleRatio(), (p-1)/(p-1+m); !near(got, want) { // design: 1F1B's share
			t.Errorf("%+v: bubble ratio %v, want %v", size, got, want)
		}
		if got, want := step.Idle(), 3*p*(p-1); !near(got, want) {
			t.Errorf("%+v: idle %v, want %v", size, got, want)
		}
	}
}

func TestOnlyTheScheduleCounts(t *testing.T) {
	step := Step{Stages: [][]Span{
		{{Reduce, -1, -1, 0, 100}, {F, 0, 0, 10, 11}, {Optimizer, -1, -1, 50, 60}},
		{{W, 1, 0, 11, 14}, {Balance, -1, -1, 90, 95}},
		nil,
	}}
	if got := step.Busy(); got[0] != 1 || got[1] != 3 || got[2] != 0 {
		t.Errorf("busy %v, want 1, 3, 0", got)
	}
	if got := step.Makespan(); got != 4 {
		t.Errorf("makespan %v, want 4", got)
	}
	if got := step.Idle(); got != 8 {
		t.Errorf("idle %v, want 8", got)
	}
	if got := step.BubbleRatio(); !near(got, 8.0/12) {
		t.Errorf("bubble ratio %v, want 2/3", got)
	}
}

func TestEmptyStep(t *testing.T) {
	for _, step := range []Step{{}, {Stages: make([][]Span, 2)}} {
		if step.Makespan() != 0 || step.BubbleRatio() != 0 || step.Idle() != 0 {
			t.Errorf("%+v: makespan %v, bubble ratio %v, idle %v, want 0", step, step.Makespan(), step.BubbleRatio(), step.Idle())
		}
	}
}

func TestImbalance(t *testing.T) {
	for _, tc := range []struct {
		loads []float64
		want  float64
	}{
		{nil, 0}, {[]float64{0, 0}, 0}, {[]float64{3, 3, 3}, 0},
		{[]float64{1, 2, 3}, 1}, {[]float64{0, 0, 6}, 3},
	} {
		if got := Imbalance(tc.loads); !near(got, tc.want) {
			t.Errorf("imbalance of %v is %v, want %v", tc.loads, got, tc.want)
		}
	}
}

func TestKindNames(t *testing.T) {
	seen := map[string]bool{}
	for k := range kinds {
		name := k.String()
		if name == "" || seen[name] {
			t.Errorf("kind %d is called %q", k, name)
		}
		seen[name] = true
		if k.Pipeline() != (name == "F" || name == "I" || name == "W") {
			t.Errorf("%s: pipeline is %v", name, k.Pipeline())
		}
	}
}
