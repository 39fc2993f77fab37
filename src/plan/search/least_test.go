package search

import (
	"testing"

	"dynmo/src/balance"
	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/plan/plantest"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// TestLeastSeconds: no step of any cuts and any schedule beats the bound, with microbatches that
// differ, slow ranks and gradient sums, in groups too. The steps come near it where those are missing.
func TestLeastSeconds(t *testing.T) {
	const layers = 12
	for _, kind := range everyKind {
		for seed := range uint64(40) {
			draw := random.Keyed(seed, 7)
			c := plantest.Settings(kind, layers, 1+draw.IntN(4), 4+draw.IntN(5))
			c.Parallel.Replicas = 1 + draw.IntN(3)
			if seed%4 == 2 {
				c.Parallel.Replicas, c.Comm.SumGroup, c.Comm.Sum = 5, 2, "bfloat16"
			}
			if c.Schedule.Virtual() > 1 && c.Parallel.Stages < 2 {
				continue
			}
			network, costs := sim.Network{}, plantest.Chain(layers, 3, seed)
			if seed%2 == 0 {
				network = sim.Uniform(1e-5, 1e6)
			}
			if seed%3 == 0 {
				network.Slow = []float64{1.5, 1, 2}
			}
			if seed%5 == 0 {
				for range layers {
					costs.Scale = append(costs.Scale, []float64{0.5, 1.5, 1})
				}
			}
			p := planner(t, c, network)
			least := begin(p, costs).LeastSeconds()
			cuts, err := bestCuts(p, costs)
			expect.OK(t, err)
			all := []partition.Partition{cuts}
			if r, err := balance.Uniform(begin(p, costs).cutProblem(&p.forms[0], balance.ByTime)); err == nil {
				all = append(all, r.Cuts)
			}
			for i, cuts := range all {
				seconds := cutsSeconds(p, costs, cuts)
				if seconds < least {
					t.Errorf("%s, %d: cuts %v take %v s, the bound is %v s", kind, seed, cuts, seconds, least)
				}
				if i == 0 && kind == schedule.KindAuto && network.Slow == nil && costs.Scale == nil && seconds > 1.5*least {
					t.Errorf("%d: the best cuts take %v s, the bound is %v s", seed, seconds, least)
				}
			}
		}
	}
}

// TestLeastOfLine: the bound of one chunk on each stage is the smallest of all cuts, found by
// trying them all.
func TestLeastOfLine(t *testing.T) {
	const layers = 8
	for seed := range uint64(50) {
		c := plantest.Settings(schedule.Kind1F1B, layers, 3, 1+int(seed)%6)
		c.Parallel.Replicas = 1 + int(seed)%2
		p := planner(t, c, sim.Uniform(0, 1e6))
		costs := plantest.Chain(layers, 3, seed)
		s := begin(p, costs).prefixes()
		want := 0.0
		for first := 1; first < layers-1; first++ {
			for second := first + 1; second < layers; second++ {
				bound := max(s.leastOfStage(0, first, p.Microbatches), s.leastOfStage(first, second, p.Microbatches), s.leastOfStage(second, layers, p.Microbatches))
				if want == 0 || bound < want {
					want = bound
				}
			}
		}
		if got := begin(p, costs).LeastSeconds(); got > want || got < want*(1-leastImprovement) {
			t.Errorf("%d: bound %v, of all cuts %v", seed, got, want)
		}
	}
}
