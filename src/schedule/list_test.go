package schedule

import (
	"path/filepath"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/random"
)

// TestListIsLegal: whatever the costs, some of them nothing, and the caps, the
// list ends, is legal and keeps to the caps.
func TestListIsLegal(t *testing.T) {
	for seed := range uint64(2000) {
		rnd := random.Keyed(seed)
		draw := func() float64 { return float64(rnd.IntN(4)) * rnd.Float64() }
		o := ListOptions{Microbatches: 1 + rnd.IntN(9), Rule: Rule{Theta: rnd.Float64(), ForwardFirst: rnd.IntN(2) == 0}}
		for range 1 + rnd.IntN(6) {
			o.Costs = append(o.Costs, cost.Stage{Forward: draw(), Input: draw(), Weight: draw()})
			o.Message = append(o.Message, draw())
			o.InFlight = append(o.InFlight, 1+rnd.IntN(9))
		}
		if rnd.IntN(3) == 0 {
			o.Message = nil
		}
		limit := func(stage int) int { return o.InFlight[stage] }
		if rnd.IntN(3) == 0 {
			o.InFlight, limit = nil, func(int) int { return o.Microbatches }
		}
		if err := List(o).Check(limit); err != nil {
			t.Fatalf("seed %d, %+v: %v", seed, o, err)
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
	for name, o := range map[string]ListOptions{
		"list_fast_stage.txt": half, "list_capped.txt": capped, "list_slow_message.txt": slow, "list_frozen_front.txt": frozen,
	} {
		t.Run(name, func(t *testing.T) { expect.Golden(t, filepath.Join("testdata", name), Format(List(o).Lists)) })
	}
}

// TestListThetaWaits: W takes 2, the next gradient comes 1 after it could start.
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

// BenchmarkList: 24 stages, 96 microbatches.
func BenchmarkList(b *testing.B) {
	o := ListOptions{Microbatches: 96}
	for range 24 {
		o.Costs = append(o.Costs, cost.Stage{Forward: 1, Input: 1.1, Weight: 0.9})
	}
	for b.Loop() {
		List(o)
	}
}
