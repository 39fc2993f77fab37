package schedule

import (
	"math"
	"slices"
	"testing"

	"dynmo/src/cost"
)

// TestSearchFindsTheOptimum: under tight caps the lists of all rules are far from the optimum. A
// search from any of them finds it.
func TestSearchFindsTheOptimum(t *testing.T) {
	one := cost.Stage{Forward: 1, Input: 1, Weight: 1}
	for name, c := range map[string]struct {
		costs         []cost.Stage
		microbatches  int
		before, after float64 // seconds of the zero rule's list, and of the optimum
	}{
		"factors":      {[]cost.Stage{one.Scale(1.6), one.Scale(1.2), one.Scale(0.8), one.Scale(0.4)}, 8, 48.8, 43.2},
		"three stages": {[]cost.Stage{{Forward: 4, Input: 4, Weight: 1}, {Forward: 3, Input: 2, Weight: 1}, {Forward: 3, Input: 1, Weight: 2}}, 3, 40, 36},
		"tenths":       {[]cost.Stage{{Forward: 0.1, Input: 1, Weight: 0.1}, {Forward: 1, Input: 0.1, Weight: 0.1}, {Input: 0.1, Weight: 0.1}}, 3, 6.7, 4.8},
	} {
		o := ListOptions{Costs: c.costs, Microbatches: c.microbatches, InFlight: slices.Repeat([]int{2}, len(c.costs))}
		l := NewLister(o)
		if got := l.Run(Rule{}); math.Abs(got-c.before) > 1e-9 {
			t.Errorf("%s: the list takes %v, want %v", name, got, c.before)
		}
		s, seconds := Search(o, l.Schedule(), 500, 0)
		if math.Abs(seconds-c.after) > 1e-9 {
			t.Errorf("%s: found %v, want %v", name, seconds, c.after)
		}
		if err := s.Check(func(int) int { return 2 }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSearchIsLegal: from any list, and from schedules with undivided backwards, the search
// finds legal schedules within the caps. They take the seconds that it returns, never longer
// than before, at times shorter.
func TestSearchIsLegal(t *testing.T) {
	shorter := 0
	for seed := range uint64(400) {
		o, limit := drawn(seed)
		start := List(o)
		if seed%4 == 0 && o.Map.Chunks == 1 && o.InFlight == nil && o.OfChunk == nil {
			start.Lists = nil
			for stage := range o.Map.Stages {
				start.Lists = append(start.Lists, oneFOneB(stage, o.Map.Stages, o.Microbatches))
			}
		}
		before := newTimes(o, start).set()
		s, seconds := Search(o, start, 60, 0)
		if err := s.Check(limit); err != nil {
			t.Fatalf("seed %d, %+v: %v", seed, o, err)
		}
		if got := newTimes(o, s).set(); math.Abs(got-seconds) > 1e-12*got || seconds > before {
			t.Fatalf("seed %d: %v after the search, which says %v, %v before", seed, got, seconds, before)
		}
		if v := overfull(o, s); v >= 0 {
			t.Fatalf("seed %d: %v in flight on virtual stage %d, want at most %d", seed, s.InFlight(), v, o.OfChunk[v])
		}
		if again, _ := Search(o, start, 60, 0); !again.Equal(s) {
			t.Fatalf("seed %d: the same search finds another schedule", seed)
		}
		if seconds < before*(1-1e-9) {
			shorter++
		}
	}
	if shorter < 100 {
		t.Errorf("%d of 400 lists became shorter", shorter)
	}
}
