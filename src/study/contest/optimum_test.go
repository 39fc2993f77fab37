package contest

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/random"
	"dynmo/src/schedule"
)

// tiny draws a step of few instructions whose costs may be 0, with and without caps
// and messages.
func tiny(rnd *rand.Rand, stages, microbatches int) Problem {
	p := Problem{Costs: make([]cost.Stage, stages), Microbatches: microbatches, InFlight: rnd.IntN(microbatches + 1), Message: float64(rnd.IntN(2) * rnd.IntN(3))}
	for s := range p.Costs {
		p.Costs[s] = cost.Stage{Forward: float64(rnd.IntN(6)), Input: float64(rnd.IntN(6)), Weight: float64(rnd.IntN(6))}
	}
	return p
}

// TestOptimumIsTheBestOfAll: of all legal lists, microbatches in any order, none is
// faster than the optimum, and one is as fast.
func TestOptimumIsTheBestOfAll(t *testing.T) {
	for _, c := range []struct{ stages, microbatches, draws int }{{1, 3, 10}, {2, 2, 60}, {3, 2, 12}, {2, 3, 2}} {
		for seed := range uint64(c.draws) {
			p := tiny(random.Keyed(seed, uint64(c.stages)), c.stages, c.microbatches)
			want := best(p)
			if got, exact := p.Optimum(math.Inf(1), 1e6); got != want || !exact {
				t.Errorf("%+v: optimum %v (exact %v), best of all lists %v", p, got, exact, want)
			}
			if got, exact := p.Optimum(want, 1e6); got != want || !exact {
				t.Errorf("%+v: optimum %v (exact %v) of one that is known, %v", p, got, exact, want)
			}
		}
	}
}

// best tries all lists.
func best(p Problem) float64 {
	s := schedule.Schedule{Map: partition.Line(len(p.Costs)), Microbatches: p.Microbatches, Lists: make([][]schedule.Instr, len(p.Costs))}
	all := slices.DeleteFunc(orders(nil, p.Microbatches), func(list []schedule.Instr) bool {
		one := schedule.Schedule{Map: partition.Line(1), Microbatches: p.Microbatches, Lists: [][]schedule.Instr{list}}
		return one.Check(func(int) int { return p.limit() }) != nil && len(p.Costs) == 1
	})
	least := math.Inf(1)
	var try func(stage int)
	try = func(stage int) {
		if stage == len(p.Costs) {
			if p.fits(s) {
				least = min(least, p.seconds(s))
			}
			return
		}
		for _, list := range all {
			s.Lists[stage] = list
			try(stage + 1)
		}
	}
	try(0)
	return least
}

// orders returns all ways to go on with the list of a stage: each microbatch F,
// I, W, the W ascending.
func orders(list []schedule.Instr, microbatches int) [][]schedule.Instr {
	if len(list) == 3*microbatches {
		return [][]schedule.Instr{slices.Clone(list)}
	}
	var all [][]schedule.Instr
	done := make([]int, microbatches)
	for _, in := range list {
		done[in.Microbatch]++
	}
	for m, n := range done {
		if n < 3 && !(n == 2 && m > 0 && done[m-1] < 3) {
			all = append(all, orders(append(list, schedule.Instr{Op: opOf[n], Microbatch: m}), microbatches)...)
		}
	}
	return all
}

// TestKnownOptima: the three steps of issue S whose optimum a list missed.
func TestKnownOptima(t *testing.T) {
	for _, c := range []struct {
		p    Problem
		want float64
	}{
		{Problem{Costs: []cost.Stage{{Forward: 4, Input: 4, Weight: 1}, {Forward: 3, Input: 2, Weight: 1}, {Forward: 3, Input: 1, Weight: 2}}, Microbatches: 3, InFlight: 2}, 36},
	} {
		if got, exact := c.p.Optimum(math.Inf(1), 1e6); got != c.want || !exact {
			t.Errorf("%v: optimum %v (exact %v), want %v", c.p, got, exact, c.want)
		}
	}
}
