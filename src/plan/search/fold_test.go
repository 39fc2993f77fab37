package search

import (
	"slices"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/plan/plantest"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// TestBestFolds: at equal memory auto lays the chain in a V where that is faster, and
// is then no slower than zb-v.
func TestBestFolds(t *testing.T) {
	for _, c := range []cost.Stage{{Forward: 1, Input: 1, Weight: 1}, {Forward: 1, Input: 1, Weight: 0.5}, {Forward: 1, Input: 1.4, Weight: 0.9}} {
		costs := plantest.Alike(c, 400)
		seconds := func(kind schedule.Kind) (of float64, folded bool) {
			p := planner(t, plantest.Folding(kind), sim.Network{})
			best, err := begin(p, costs).BestLayout()
			expect.OK(t, err)
			expect.OK(t, best.Check(16))
			if err := best.Schedule.Check(func(int) int { return 8 }); best.Map().Vee && err != nil {
				t.Errorf("%+v, %s: %v", c, kind, err)
			}
			return begin(p, costs).Seconds(best), best.Map().Vee
		}
		vee, _ := seconds(schedule.KindZBV)
		p := planner(t, plantest.Folding(schedule.KindAuto), sim.Network{})
		cuts, err := bestCuts(p, costs)
		expect.OK(t, err)
		if line := cutsSeconds(p, costs, cuts); line < 1.05*vee {
			t.Errorf("%+v: one chunk on each stage takes %v, zb-v %v: nothing to gain", c, line, vee)
		}
		if got, folded := seconds(schedule.KindAuto); got > vee*(1+1e-9) || !folded {
			t.Errorf("%+v: auto takes %v, folded %v; zb-v takes %v", c, got, folded, vee)
		}
	}
}

// TestFoldsWithinMemory: under a limit that zb-v's order keeps to, so does what is
// found on the V, chunk by chunk.
func TestFoldsWithinMemory(t *testing.T) {
	for seed := range uint64(10) {
		c := plantest.Settings(schedule.KindAuto, 16, 4, 5)
		c.Balance.Kind = "partition"
		costs := plantest.Chain(16, 1, seed)
		s := begin(planner(t, c, plantest.Link), costs)
		cuts, err := s.bestCuts(&s.forms[1])
		expect.OK(t, err)
		c.Balance.MemoryLimitBytes = slices.Max(s.bytesInBase(cuts))
		s = begin(planner(t, c, plantest.Link), costs)
		l := s.Layout(cuts)
		if got := slices.Max(s.Bytes(l)); got > c.Balance.MemoryLimitBytes || !l.Map().Vee {
			t.Errorf("draw %d: %d bytes, the limit is %d", seed, got, c.Balance.MemoryLimitBytes)
		}
		if got, base := s.Makespan(l), s.Makespan(s.baseLayout(cuts)); got > base {
			t.Errorf("draw %d: %v, the base takes %v", seed, got, base)
		}
	}
}

// TestCutsOfChunksBeatStaticOnes: the best cuts of several chunks on a stage are no worse than
// those of static balancers, with any head and any sum over replicas.
func TestCutsOfChunksBeatStaticOnes(t *testing.T) {
	for _, kind := range []schedule.Kind{schedule.KindInterleaved, schedule.KindZBInterleaved, schedule.KindZBV} {
		for seed := range uint64(8) {
			c := plantest.Folding(kind)
			c.Parallel.Replicas = 4
			costs := plantest.Alike(cost.Stage{Forward: 1, Input: 1, Weight: 1}, 400)
			draw := random.Keyed(seed)
			for l := range costs.Layers {
				costs.Layers[l].NonZeros = 1e5 * (1 + 9*int64(draw.IntN(2)))
				costs.Layers[l].Bytes.Gradients = 4 * costs.Layers[l].NonZeros
			}
			p := planner(t, c, sim.Uniform(0, 1e8))
			cuts, err := bestCuts(p, costs)
			expect.OK(t, err)
			for _, static := range []string{"uniform", "param"} {
				c.Balance.Kind = static
				first, err := begin(planner(t, c, sim.Network{}), costs).FirstLayout()
				expect.OK(t, err)
				if best, other := cutsSeconds(p, costs, cuts), cutsSeconds(p, costs, first.Cuts); best > other*(1+1e-12) {
					t.Errorf("%s, draw %d: %v s, %s cuts take %v", kind, seed, best, static, other)
				}
			}
		}
	}
}
