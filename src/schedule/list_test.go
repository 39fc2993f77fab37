package schedule

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/random"
)

// drawn returns random options with any map, and the cap of each stage. Some costs are 0.
func drawn(seed uint64) (ListOptions, func(stage int) int) {
	rnd := random.Keyed(seed)
	draw := func() float64 { return float64(rnd.IntN(4)) * rnd.Float64() }
	o := ListOptions{
		Map:          partition.Map{Stages: 1 + rnd.IntN(6), Chunks: 1 + rnd.IntN(3), Vee: rnd.IntN(2) == 0},
		Microbatches: 1 + rnd.IntN(9), Dispatch: draw() / 8,
		Rule: Rule{
			Theta: rnd.Float64(), Patience: rnd.Float64(),
			ForwardFirst: rnd.IntN(2) == 0, Drain: rnd.IntN(2) == 0, Turns: rnd.IntN(2) == 0,
		},
	}
	for range o.Map.Virtual() {
		o.Costs = append(o.Costs, cost.Stage{Forward: draw(), Input: draw(), Weight: draw()})
		o.Message = append(o.Message, draw())
	}
	for range o.Map.Stages {
		o.InFlight = append(o.InFlight, o.Map.Chunks+rnd.IntN(9))
	}
	if rnd.IntN(3) == 0 {
		o.Message = nil
	}
	limit := func(stage int) int { return o.InFlight[stage] }
	if rnd.IntN(3) == 0 {
		o.InFlight, limit = nil, func(int) int { return o.Map.Chunks * o.Microbatches }
	}
	if rnd.IntN(2) == 0 {
		for range o.Map.Virtual() {
			o.OfChunk = append(o.OfChunk, 1+rnd.IntN(5))
		}
	}
	o.Rounds, o.Fill = rnd.IntN(3) == 0, rnd.IntN(2) == 0
	return o, limit
}

// overfull returns a virtual stage with more microbatches in flight than its cap; -1 if there is
// none.
func overfull(o ListOptions, s Schedule) int {
	for v, n := range s.InFlight() {
		if o.OfChunk != nil && n > o.OfChunk[v] {
			return v
		}
	}
	return -1
}

// TestListIsLegal: for any map, costs, caps and rule the list ends and is legal. It respects the
// caps, and takes the seconds that the lister returns.
func TestListIsLegal(t *testing.T) {
	for seed := range uint64(2000) {
		o, limit := drawn(seed)
		l := NewLister(o)
		seconds := l.Run(o.Rule)
		s := l.Schedule()
		if err := s.Check(limit); err != nil {
			t.Fatalf("seed %d, %+v: %v", seed, o, err)
		}
		if v := overfull(o, s); v >= 0 {
			t.Fatalf("seed %d: %v in flight on virtual stage %d, want at most %d", seed, s.InFlight(), v, o.OfChunk[v])
		}
		if got := newTimes(o, s).set(); math.Abs(got-seconds) > 1e-12*got {
			t.Fatalf("seed %d: the list takes %v, not %v", seed, got, seconds)
		}
		if least := o.Least(); seconds < least*(1-1e-12) {
			t.Fatalf("seed %d: the list takes %v, which is below %v", seed, seconds, least)
		}
		if again := l.Run(o.Rule); again != seconds || !l.Schedule().Equal(s) {
			t.Fatalf("seed %d: the same rule makes another list", seed)
		}
	}
}

func TestListGolden(t *testing.T) {
	one := cost.Stage{Forward: 1, Input: 1, Weight: 1}
	half := ListOptions{Costs: []cost.Stage{one, one, one.Scale(0.5), one}, Microbatches: 4}
	capped := half
	capped.InFlight = []int{2, 2, 2, 2}
	slow := ListOptions{Costs: []cost.Stage{one, one, one, one}, Microbatches: 6, Message: []float64{0, 2, 0, 0}}
	frozen := half
	frozen.Costs = []cost.Stage{{Forward: 1}, one, one, one}
	rounds := ListOptions{
		Map: partition.Map{Stages: 4, Chunks: 2, Vee: true}, Costs: slices.Repeat([]cost.Stage{{Forward: 1, Input: 1, Weight: 0.5}}, 8),
		Microbatches: 6, InFlight: []int{8, 8, 8, 8}, Rule: Rule{Rounds: true, Fill: true},
	}
	for name, o := range map[string]ListOptions{
		"list_rounds.txt":     rounds,
		"list_fast_stage.txt": half, "list_capped.txt": capped, "list_slow_message.txt": slow, "list_frozen_front.txt": frozen,
	} {
		t.Run(name, func(t *testing.T) { expect.Golden(t, filepath.Join("testdata", name), Format(List(o).Lists)) })
	}
}

// TestListThetaWaits: W takes 2 s, and the next gradient comes 1 s after W could start.
func TestListThetaWaits(t *testing.T) {
	costs := []cost.Stage{{Forward: 1, Input: 1, Weight: 2}, {Forward: 1, Input: 1, Weight: 0}}
	for theta, want := range map[float64]string{
		0.5: "F0 F1 I0 W0 I1 W1\n",
		0.6: "F0 F1 I0 I1 W0 W1\n",
	} {
		s := List(ListOptions{Costs: costs, Microbatches: 2, Rule: Rule{Theta: theta}})
		if got := Format(s.Lists[:1]); got != want {
			t.Errorf("theta %v: %q, want %q", theta, got, want)
		}
	}
}
