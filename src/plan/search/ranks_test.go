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

// TestStepOnRanks: links and speeds are those of the ranks of the present layout, and so are the
// layouts that are found, in both maps.
func TestStepOnRanks(t *testing.T) {
	network := sim.Network{Node: sim.Link{Latency: 1}, Between: sim.Link{Latency: 2}, PerNode: 2, Slow: []float64{1, 1, 3, 4}}
	dense := plantest.Chain(8, 1, 1)
	for _, kind := range []schedule.Kind{schedule.Kind1F1B, schedule.KindAuto} {
		p := planner(t, plantest.Settings(kind, 8, 2, 4), network)
		first, err := begin(p, dense).FirstLayout()
		expect.OK(t, err)
		if s := p.Step(dense, first); first.Ranks != nil || s.link(0, 1) != network.Node || s.slowdown(1) != 1 {
			t.Errorf("%s: the first ranks: %v, %+v, %v", kind, first.Ranks, s.link(0, 1), s.slowdown(1))
		}
		on := first
		on.Ranks = []int{0, 3}
		s := p.Step(dense, on)
		if s.link(0, 1) != network.Between || s.slowdown(1) != 4 || s.slowdown(0) != 1 {
			t.Errorf("%s: ranks 0 and 3: %+v, %v", kind, s.link(0, 1), s.slowdown(1))
		}
		best, err := s.BestLayout()
		expect.OK(t, err)
		if !slices.Equal(best.Ranks, on.Ranks) {
			t.Errorf("%s: the best layout is on ranks %v", kind, best.Ranks)
		}
		for _, m := range p.Maps {
			other, err := s.BestInMap(m)
			if expect.OK(t, err); !slices.Equal(other.Ranks, on.Ranks) || other.Map() != m {
				t.Errorf("%s: the best layout of a map is on ranks %v, in %+v", kind, other.Ranks, m)
			}
		}
		if err := p.Accepts(on, first.Ranks); err == nil || !strings.Contains(err.Error(), "ranks [0 3], want []") {
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
