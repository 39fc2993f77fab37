package search_test

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
	all := orders(nil, p.Microbatches)
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

// TestKnownOptima: steps on which auto was 7, 11 and 40 % behind the optimum once.
func TestKnownOptima(t *testing.T) {
	var slower []cost.Stage
	for _, x := range []float64{1.6, 1.2, 0.8, 0.4} {
		slower = append(slower, cost.Stage{Forward: x, Input: x, Weight: x})
	}
	for _, c := range []struct {
		name string
		p    Problem
		want float64
	}{
		{"ever faster stages, 2 in flight", Problem{Costs: slower, Microbatches: 8, InFlight: 2}, 43.2},
		{"three stages, 2 in flight", Problem{Costs: []cost.Stage{{Forward: 4, Input: 4, Weight: 1}, {Forward: 3, Input: 2, Weight: 1}, {Forward: 3, Input: 1, Weight: 2}}, Microbatches: 3, InFlight: 2}, 36},
		{"one op of each stage", Problem{Costs: []cost.Stage{{Forward: 0.1, Input: 1, Weight: 0.1}, {Forward: 1, Input: 0.1, Weight: 0.1}, {Forward: 0, Input: 0.1, Weight: 0.1}}, Microbatches: 3}, 4.8},
	} {
		got, exact := c.p.Optimum(math.Inf(1), 1e6)
		if auto := c.p.auto(); math.Abs(got-c.want) > 1e-9 || !exact || auto > c.want+1e-9 {
			t.Errorf("%s: optimum %v (exact %v), auto %v, want %v", c.name, got, exact, auto, c.want)
		}
	}
}
