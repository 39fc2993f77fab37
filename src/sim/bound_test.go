package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/random"
	"dynmo/src/schedule"
)

// TestLowerBoundByHand has three stages with given f, i and w, and four microbatches.
func TestLowerBoundByHand(t *testing.T) {
	one := cost.Stage{Forward: 1, Input: 1, Weight: 1}
	for _, c := range []struct {
		name     string
		costs    []cost.Stage
		inFlight []int
		want     float64
	}{
		{"the last stage is full of work", equal(3, one), nil, 2 + 4*3},
		{"the first stage forwards last", []cost.Stage{{Forward: 9, Input: 1}, one, one}, nil, 4*9 + 4 + 1},
		{"the last of all inputs", []cost.Stage{{Forward: 1, Input: 3, Weight: 5}, one, {Forward: 1, Input: 9}}, nil, 2 + 4*10 + 4 + 5},
		{"the first gradient comes late", []cost.Stage{{Forward: 1, Input: 9, Weight: 9}, one, one}, nil, 5 + 4*18},
		{"nothing but in turn", equal(3, one), []int{1, 1, 1}, 4 * 7},
		{"two forwards after the first gradient", equal(3, one), []int{2, 9, 9}, 5 + 4*2 + 2},
	} {
		if got := LowerBound(partition.Line(3), c.costs, 4, c.inFlight); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	vee := partition.Map{Stages: 2, Chunks: 2, Vee: true}
	if got := LowerBound(vee, []cost.Stage{one, one, one, one}, 4, nil); got != 1+4*6 {
		t.Errorf("V: %v, want 25", got)
	}
}

func randomCosts(rnd *rand.Rand, stages int) []cost.Stage {
	costs := make([]cost.Stage, stages)
	for s := range costs {
		costs[s] = cost.Stage{Forward: float64(rnd.IntN(9)), Input: float64(rnd.IntN(9)), Weight: float64(rnd.IntN(9))} // small integers: sums are exact
	}
	return costs
}

// TestLowerBoundHolds: on random costs no schedule of any kind is faster than the bound, nor is a
// list under caps. Without caps some list is nearly as fast.
func TestLowerBoundHolds(t *testing.T) {
	sum, count := 0.0, 0.0
	for seed := range uint64(500) {
		rnd := random.Keyed(seed)
		stages, m := 1+rnd.IntN(6), 1+rnd.IntN(12)
		costs := randomCosts(rnd, stages)
		for _, kind := range []schedule.Kind{schedule.KindGPipe, schedule.Kind1F1B, schedule.KindZBH1, schedule.KindZBH2} {
			s := plain(t, kind, stages, m)
			caps := make([]int, stages)
			for stage := range caps {
				caps[stage] = s.Cap(stage)
			}
			if got, bound := Makespan(s, costs), LowerBound(s.Map, costs, m, caps); got < bound {
				t.Fatalf("seed %d, %s: makespan %v, bound %v", seed, kind, got, bound)
			}
		}
		for _, kind := range []schedule.Kind{schedule.KindInterleaved, schedule.KindZBV, schedule.KindZBInterleaved} {
			s, err := schedule.New(kind, stages, 2, m*stages)
			expect.OK(t, err)
			virtual := randomCosts(rnd, 2*stages)
			if got, bound := Makespan(s, virtual), LowerBound(s.Map, virtual, m*stages, nil); got < bound {
				t.Fatalf("seed %d, %s: makespan %v, bound %v", seed, kind, got, bound)
			}
		}
		caps := make([]int, stages)
		for stage := range caps {
			caps[stage] = 1 + rnd.IntN(m)
		}
		for _, caps := range [][]int{nil, caps} {
			s := schedule.List(schedule.ListOptions{Costs: costs, Microbatches: m, InFlight: caps, Rule: schedule.Rule{Theta: rnd.Float64()}})
			got, bound := Makespan(s, costs), LowerBound(s.Map, costs, m, caps)
			if got < bound {
				t.Fatalf("seed %d, list, caps %v: makespan %v, bound %v", seed, caps, got, bound)
			}
			if caps == nil && bound > 0 {
				sum, count = sum+got/bound, count+1
			}
		}
	}
	if mean := sum / count; mean > 1.05 {
		t.Errorf("a list without caps takes %.3f times the bound in the mean", mean)
	}
}

// TestLowerBoundAgainstTheOptimum tries all legal lists of three stages with two microbatches, and
// of two with three, under random caps. None is below the bound, and most of the time the best is
// on it.
func TestLowerBoundAgainstTheOptimum(t *testing.T) {
	for _, c := range []struct {
		stages, microbatches, draws int
		reached                     float64 // share of the draws in which the bound equals the optimum
	}{{3, 2, 40, 0.8}, {2, 3, 4, 0.8}} {
		reached := 0
		for seed := range uint64(c.draws) {
			rnd := random.Keyed(seed)
			costs := randomCosts(rnd, c.stages)
			caps := make([]int, c.stages)
			for stage := range caps {
				caps[stage] = 1 + rnd.IntN(c.microbatches)
			}
			best := optimum(Step{Costs: costs}, c.stages, c.microbatches, caps)
			bound := LowerBound(partition.Line(c.stages), costs, c.microbatches, caps)
			if best < bound {
				t.Fatalf("costs %v, caps %v: optimum %v, bound %v", costs, caps, best, bound)
			}
			if best == bound {
				reached++
			}
		}
		if share := float64(reached) / float64(c.draws); share < c.reached {
			t.Errorf("%d stages: the bound is the optimum in %v of the draws, want %v", c.stages, share, c.reached)
		}
	}
}

// TestLowerBoundOfUnequalMicrobatches: the first two of three microbatches are light. A list beats
// the bound of the mean microbatch, 1 + 3·4. It does not beat the bound that knows the
// microbatches. Where all are alike the two bounds are equal.
func TestLowerBoundOfUnequalMicrobatches(t *testing.T) {
	mean := []cost.Stage{{Forward: 1}, {Forward: 4}}
	s := Step{Schedule: plain(t, schedule.Kind1F1B, 2, 3), PerMicrobatch: make([][]cost.Stage, 2)}
	for v, c := range mean {
		s.PerMicrobatch[v] = []cost.Stage{c.Scale(0.5), c.Scale(0.5), c.Scale(2)}
	}
	if got := Run(s).Makespan(); got != 12.5 || LowerBound(s.Schedule.Map, mean, 3, nil) != 13 || s.LowerBound(nil) != 12.5 {
		t.Errorf("makespan %v, bound of the mean %v, bound %v, want 12.5, 13, 12.5", got, LowerBound(s.Schedule.Map, mean, 3, nil), s.LowerBound(nil))
	}
	for seed := range uint64(200) {
		rnd := random.Keyed(seed)
		stages, m := 1+rnd.IntN(5), 1+rnd.IntN(9)
		costs, caps := randomCosts(rnd, stages), make([]int, stages)
		s := Step{Schedule: plain(t, schedule.KindGPipe, stages, m), PerMicrobatch: make([][]cost.Stage, stages)}
		for v := range caps {
			caps[v], s.PerMicrobatch[v] = 1+rnd.IntN(m), slices.Repeat(costs[v:v+1], m)
		}
		if got, want := s.LowerBound(caps), LowerBound(s.Schedule.Map, costs, m, caps); math.Abs(got-want) > 1e-9 {
			t.Fatalf("seed %d: %v of equal microbatches one by one, %v of one for all", seed, got, want)
		}
	}
}

// unequalStep returns a step with different costs for each microbatch, on slow ranks.
func unequalStep(rnd *rand.Rand, s schedule.Schedule) Step {
	step := Step{Schedule: s, Network: Network{Slow: make([]float64, s.Map.Stages)}}
	for stage := range step.Network.Slow {
		step.Network.Slow[stage] = float64(1 + rnd.IntN(3))
	}
	for range s.Map.Virtual() {
		step.PerMicrobatch = append(step.PerMicrobatch, randomCosts(rnd, s.Microbatches))
	}
	return step
}

// TestUnequalBoundHolds: with random costs of every microbatch, no schedule of any kind is faster
// than the bound. Under random caps no legal lists of small steps are.
func TestUnequalBoundHolds(t *testing.T) {
	for seed := range uint64(300) {
		rnd := random.Keyed(seed, 7)
		stages, m := 1+rnd.IntN(6), 1+rnd.IntN(12)
		for _, k := range []struct {
			kind   schedule.Kind
			chunks int
		}{
			{schedule.KindGPipe, 1}, {schedule.Kind1F1B, 1}, {schedule.KindZBH1, 1}, {schedule.KindZBH2, 1}, {schedule.KindZBV, 2},
		} {
			s, err := schedule.New(k.kind, stages, k.chunks, m)
			expect.OK(t, err)
			caps := make([]int, stages)
			for stage := range caps {
				caps[stage] = s.Cap(stage)
			}
			step := unequalStep(rnd, s)
			if got, bound := Run(step).Makespan(), step.LowerBound(caps); got < bound {
				t.Fatalf("seed %d, %s: makespan %v, bound %v", seed, k.kind, got, bound)
			}
		}
	}
	for seed := range uint64(12) {
		rnd := random.Keyed(seed, 8)
		stages, m := 3, 2
		if seed%6 == 0 {
			stages, m = m, stages
		}
		step := unequalStep(rnd, plain(t, schedule.KindGPipe, stages, m))
		caps := make([]int, stages)
		for stage := range caps {
			caps[stage] = 1 + rnd.IntN(m)
		}
		if best, bound := optimum(step, stages, m, caps), step.LowerBound(caps); best < bound {
			t.Fatalf("seed %d: %+v, caps %v: optimum %v, bound %v", seed, step, caps, best, bound)
		}
	}
}

// optimum returns the least makespan of all legal lists.
func optimum(step Step, stages, microbatches int, caps []int) float64 {
	s := schedule.Schedule{Map: partition.Line(stages), Microbatches: microbatches, Lists: make([][]schedule.Instr, stages)}
	step.Schedule = s // s shares the lists that the loop changes
	all := orders(nil, microbatches)
	best := math.Inf(1)
	var try func(stage int)
	try = func(stage int) {
		if stage < stages {
			for _, list := range all {
				s.Lists[stage] = list
				try(stage + 1)
			}
			return
		}
		if s.Check(func(stage int) int { return caps[stage] }) == nil {
			best = min(best, Run(step).Makespan())
		}
	}
	try(0)
	return best
}

// orders returns all continuations of a stage's list: F, I, W for each microbatch, with W
// ascending.
func orders(list []schedule.Instr, microbatches int) [][]schedule.Instr {
	if len(list) == 3*microbatches {
		return [][]schedule.Instr{append([]schedule.Instr(nil), list...)}
	}
	var all [][]schedule.Instr
	done := make([]int, microbatches)
	for _, in := range list {
		done[in.Microbatch]++
	}
	for m, n := range done {
		if n == 3 || n == 2 && m > 0 && done[m-1] < 3 {
			continue
		}
		op := []schedule.Op{schedule.F, schedule.I, schedule.W}[n]
		all = append(all, orders(append(list, do(op, m)), microbatches)...)
	}
	return all
}
