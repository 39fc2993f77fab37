package trace

import (
	"math"
	"slices"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-12 }

// pipe returns a step over equal stages with the busy time and the makespan of
// 1F1B: forward 1 s, backward 2 s, and (P-1)·3 s idle on every stage.
func pipe(stages, microbatches int) Step {
	step := Step{Stages: make([][]Span, stages)}
	for s := range stages {
		at := 2 + float64(s) // the step begins at 2 s
		for m := range microbatches {
			step.Stages[s] = append(step.Stages[s],
				Span{F, s, 0, m, 0, at, at + 1, 0, 0}, Span{I, s, 0, m, 0, at + 1, at + 2, 0, 0}, Span{W, s, 0, m, 0, at + 2, at + 3, 0, 0})
			at += 3
		}
	}
	// Stage 0 ends last, because its last gradient passes all other stages.
	last := &step.Stages[0][len(step.Stages[0])-1]
	end := 2 + float64(3*(stages-1+microbatches))
	last.Start, last.End = end-1, end
	return step
}

func TestEqualStages(t *testing.T) {
	for _, size := range []struct{ stages, microbatches int }{{1, 1}, {4, 8}, {8, 4}} {
		p, m := float64(size.stages), float64(size.microbatches)
		got := pipe(size.stages, size.microbatches).Summary()
		if want := 3 * (p - 1 + m); !near(got.Makespan(), want) {
			t.Errorf("%+v: makespan %v, want %v", size, got.Makespan(), want)
		}
		if want := (p - 1) / (p - 1 + m); !near(got.BubbleRatio(), want) { // 1F1B's share of idle time
			t.Errorf("%+v: bubble ratio %v, want %v", size, got.BubbleRatio(), want)
		}
		if want := 3 * p * (p - 1); !near(got.Idle(), want) {
			t.Errorf("%+v: idle %v, want %v", size, got.Idle(), want)
		}
	}
}

func TestOnlyTheScheduleCounts(t *testing.T) {
	got := Step{Stages: [][]Span{
		{{Reduce, -1, 0, -1, 0, 0, 100, 0, 0}, {F, 0, 0, 0, 0, 10, 11, 0, 0}, {Optimizer, -1, 0, -1, 0, 50, 60, 0, 0}},
		{{W, 1, 0, 0, 0, 11, 14, 0, 0}, {Optimizer, -1, 0, -1, 0, 90, 105, 0, 0}},
		nil,
	}}.Summary()
	if got.Busy[0] != 1 || got.Busy[1] != 3 || got.Busy[2] != 0 {
		t.Errorf("busy %v, want 1, 3, 0", got.Busy)
	}
	if got.Start != 10 || got.End != 14 || got.Finish != 105 {
		t.Errorf("from %v to %v, finished at %v, want 10, 14, 105", got.Start, got.End, got.Finish)
	}
	if got.Idle() != 8 || !near(got.BubbleRatio(), 8.0/12) {
		t.Errorf("idle %v, bubble ratio %v, want 8, 2/3", got.Idle(), got.BubbleRatio())
	}
}

// TestJoin: summaries of stages that are computed separately, as on ranks, join to the summary of
// the step.
func TestJoin(t *testing.T) {
	step := pipe(4, 8)
	var parts []Summary
	for _, spans := range step.Stages {
		parts = append(parts, Summarise(spans))
	}
	got, want := Join(parts), step.Summary()
	if got.Makespan() != want.Makespan() || got.Idle() != want.Idle() || got.Finish != want.Finish || len(got.Busy) != 4 {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestEmptyStep(t *testing.T) {
	for _, step := range []Step{{}, {Stages: make([][]Span, 2)}} {
		if s := step.Summary(); s.Makespan() != 0 || s.BubbleRatio() != 0 || s.Idle() != 0 {
			t.Errorf("%d stages: makespan %v, bubble ratio %v, idle %v, want 0", len(step.Stages), s.Makespan(), s.BubbleRatio(), s.Idle())
		}
	}
}

// TestIdleIsNotNegative: a stage that is never idle has no idle time, though its spans add up to
// a bit more than the makespan in floating point.
func TestIdleIsNotNegative(t *testing.T) {
	s := Summary{Busy: []float64{0.1 + 0.2 + 1e-16}, End: 0.3}
	if s.Idle() != 0 || s.BubbleRatio() != 0 {
		t.Errorf("idle %v, bubble ratio %v, want 0", s.Idle(), s.BubbleRatio())
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
	for k := F; k <= Optimizer; k++ {
		name := k.String()
		if name == "" || seen[name] {
			t.Errorf("kind %d is called %q", k, name)
		}
		seen[name] = true
		if k.Pipeline() != (len(name) == 1) {
			t.Errorf("%s: pipeline is %v", name, k.Pipeline())
		}
	}
}

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		list []float64
		want float64
	}{
		{nil, 0}, {[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 2}, 2}, {[]float64{5, 1, 3, 2}, 2.5},
	} {
		before := slices.Clone(tc.list)
		if got := Median(tc.list); got != tc.want || !slices.Equal(tc.list, before) {
			t.Errorf("median of %v is %v, want %v", before, got, tc.want)
		}
	}
}
