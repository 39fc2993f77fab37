package search

import (
	"slices"
	"strings"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/plan/plantest"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// TestPlannerOnRanks: links and speeds are those of the ranks of the launched world, and so
// are the layouts that a planner makes; it is the same planner as long as these are.
func TestPlannerOnRanks(t *testing.T) {
	network := sim.Network{Node: sim.Link{Latency: 1}, Between: sim.Link{Latency: 2}, PerNode: 2, Slow: []float64{1, 1, 3, 4}}
	dense := plantest.Chain(8, 1, 1)
	for _, kind := range []schedule.Kind{schedule.Kind1F1B, schedule.KindAuto} {
		p := planner(t, plantest.Settings(kind, 8, 2, 4), network)
		first, err := p.FirstLayout(dense)
		expect.OK(t, err)
		if first.Ranks != nil || p.link(0) != network.Node || p.slowdown(1) != 1 {
			t.Errorf("%s: the first ranks: %v, %+v, %v", kind, first.Ranks, p.link(0), p.slowdown(1))
		}
		on := first
		on.Ranks = []int{0, 3}
		q, err := p.Match(on)
		expect.OK(t, err)
		if q.link(0) != network.Between || q.slowdown(1) != 4 || q.slowdown(0) != 1 {
			t.Errorf("%s: ranks 0 and 3: %+v, %v", kind, q.link(0), q.slowdown(1))
		}
		best, err := q.BestLayout(dense)
		expect.OK(t, err)
		if !slices.Equal(best.Ranks, on.Ranks) {
			t.Errorf("%s: the best layout is on ranks %v", kind, best.Ranks)
		}
		for _, l := range [][]int{best.Ranks, on.Ranks} {
			on.Ranks = l
			if again, err := q.Match(on); again != q || err != nil {
				t.Errorf("%s: another planner for the same ranks", kind)
			}
		}
		if q.Other != nil && (q.Other.Other != q || !slices.Equal(q.Other.Ranks, on.Ranks)) {
			t.Errorf("%s: the planner of the other map is on ranks %v", kind, q.Other.Ranks)
		}
		if back, err := q.Match(first); err != nil || back.Ranks != nil || back.slowdown(1) != 1 {
			t.Errorf("%s: back on the first ranks: %v", kind, back.Ranks)
		}
		if err := p.Accepts(on); err == nil || !strings.Contains(err.Error(), "ranks [0 3], want []") {
			t.Errorf("%s: %v, want an error that names the ranks", kind, err)
		}
		// A node further away, and a slower rank: both are seen in what a step takes.
		near, err := p.Simulate(cost.Phase{Table: dense}, first, 0)
		expect.OK(t, err)
		far, err := p.Simulate(cost.Phase{Table: dense}, on, 0)
		expect.OK(t, err)
		if far.Seconds < near.Seconds+1 {
			t.Errorf("%s: %v s on ranks 0 and 3, %v on 0 and 1", kind, far.Seconds, near.Seconds)
		}
	}
}
