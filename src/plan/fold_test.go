package plan

import (
	"slices"
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/plan/plantest"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// folding settings: 16 layers on 4 stages, with the memory of 1F1B's first stage and
// twice as many microbatches as stages.
func foldingSettings(kind schedule.Kind) config.Config {
	c := plantest.Settings(kind, 16, 4, 8)
	c.Balance.Kind, c.Balance.Every = "partition", "1"
	if kind == schedule.KindAuto {
		c.Schedule.InFlight = 4
	}
	return c
}

// alike returns 16 layers that cost the same, and hold some parameters.
func alike(c cost.Stage, parameters int64) cost.Table {
	t := plantest.Chain(16, 0, 0)
	for l := range t.Layers {
		t.Layers[l] = t.Layers[l].With(c.Scale(1e-3))
		t.Layers[l].Bytes.Parameters = parameters
	}
	return t
}

// TestBestFolds: at equal memory auto lays the chain in a V where that is faster, and
// is then no slower than zb-v.
func TestBestFolds(t *testing.T) {
	for _, c := range []cost.Stage{{Forward: 1, Input: 1, Weight: 1}, {Forward: 1, Input: 1, Weight: 0.5}, {Forward: 1, Input: 1.4, Weight: 0.9}} {
		costs := alike(c, 400)
		seconds := func(kind schedule.Kind) (of float64, folded bool) {
			p := planner(t, foldingSettings(kind), sim.Network{})
			best, err := p.Best(costs)
			expect.OK(t, err)
			expect.OK(t, best.Check(16))
			if err := best.Schedule.Check(func(int) int { return 8 }); best.Map().Vee && err != nil {
				t.Errorf("%+v, %s: %v", c, kind, err)
			}
			return p.seconds(costs, best.Cuts, best.Schedule), best.Map().Vee
		}
		vee, _ := seconds(schedule.KindZBV)
		p := planner(t, foldingSettings(schedule.KindAuto), sim.Network{})
		cuts, err := p.Cuts(costs)
		expect.OK(t, err)
		if line := p.Seconds(costs, cuts); line < 1.05*vee {
			t.Errorf("%+v: one chunk on each stage takes %v, zb-v %v: nothing to gain", c, line, vee)
		}
		if got, folded := seconds(schedule.KindAuto); got > vee*(1+1e-9) || !folded {
			t.Errorf("%+v: auto takes %v, folded %v; zb-v takes %v", c, got, folded, vee)
		}
	}
}

// TestDecideFolds: a balancer moves layers into a V where that pays for the moves, and
// not where it does not; there it stays, and goes on being balanced.
func TestDecideFolds(t *testing.T) {
	one := cost.Stage{Forward: 1, Input: 1, Weight: 1}
	a := newAsked(t, foldingSettings(schedule.KindAuto), 0)
	if a.now.Map().Vee {
		t.Fatal("the first layout is a V")
	}
	if why := a.after(alike(one, 1e12), false); a.now.Map().Vee || why.Kept != "" && why.Kept != KeptPrice {
		t.Errorf("%+v on %+v, though 16 terabytes would move", why, a.now.Map())
	}
	a = newAsked(t, foldingSettings(schedule.KindAuto), 0)
	if why := a.after(alike(one, 400), false); !a.now.Map().Vee || why.Kept != "" || why.Gain.Least < 0.04 || why.Optimum > why.Bottleneck {
		t.Errorf("%+v on %+v, want a V", why, a.now.Map())
	}
	if why := a.after(alike(one, 400), false); !a.now.Map().Vee || why.Kept != KeptBest {
		t.Errorf("%+v on %+v, want to stay in the V", why, a.now.Map())
	}
	expect.OK(t, a.now.Check(16))
	slow := alike(one, 400)
	slow.Layers[0] = slow.Layers[0].With(one.Scale(8e-3))
	before := a.now.Cuts
	if why := a.after(slow, false); a.now.Cuts.Equal(before) {
		t.Errorf("%+v: %v stay, though the first layer takes 8 times as long", why, before)
	}
}

// TestDecideFoldsWhenItPays: where the balancer itself finds out when to decide, it
// finds out that a V pays.
func TestDecideFoldsWhenItPays(t *testing.T) {
	c := foldingSettings(schedule.KindAuto)
	c.Balance.Every = "auto"
	a := newAsked(t, c, 0)
	costs := alike(cost.Stage{Forward: 1, Input: 1, Weight: 1}, 400)
	for step := 0; step < 20 && !a.now.Map().Vee; step++ {
		a.after(costs, false)
	}
	if !a.now.Map().Vee {
		t.Errorf("on %+v after 20 steps", a.now.Map())
	}
}

// TestDecideWhenOtherChunksPay: where the balancer itself finds out when to decide, it finds
// out that other cuts pay though stages hold several chunks, of which the exact partition
// knows nothing: its cuts give a long head a chunk of its own, and are worse than even ones.
func TestDecideWhenOtherChunksPay(t *testing.T) {
	costs := alike(cost.Stage{Forward: 1, Input: 1, Weight: 1}, 400)
	costs.Layers[15] = costs.Layers[15].With(cost.Stage{Forward: 8e-3, Input: 8e-3, Weight: 8e-3})
	for _, kind := range []schedule.Kind{schedule.KindInterleaved, schedule.KindZBInterleaved, schedule.KindZBV} {
		c := foldingSettings(kind)
		c.Balance.Every = "auto"
		p := planner(t, c, sim.Network{})
		cuts, err := p.Cuts(costs)
		expect.OK(t, err)
		a := newAsked(t, c, 0)
		first := p.Seconds(costs, a.now.Cuts)
		for range 20 {
			a.after(costs, false)
		}
		if best, got := p.Seconds(costs, cuts), p.seconds(costs, a.now.Cuts, a.now.Schedule); first < 1.02*best || got > 1.01*best {
			t.Errorf("%s: a step takes %v s after 20, %v at first; the best cuts found %v", kind, got, first, best)
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
		p := planner(t, c, plantest.Link).other
		cuts, err := p.Cuts(costs)
		expect.OK(t, err)
		c.Balance.MemoryLimitBytes = slices.Max(p.Bytes(costs, cuts, p.base.Peaks()))
		p = planner(t, c, plantest.Link).other
		s := p.Schedule(costs, cuts)
		if got := slices.Max(p.Bytes(costs, cuts, s.Peaks())); got > c.Balance.MemoryLimitBytes {
			t.Errorf("draw %d: %d bytes, the limit is %d", seed, got, c.Balance.MemoryLimitBytes)
		}
		if base := p.makespan(costs, cuts, p.base); p.makespan(costs, cuts, s) > base {
			t.Errorf("draw %d: %v, the base takes %v", seed, p.makespan(costs, cuts, s), base)
		}
	}
}

// TestCutsOfChunksBeatStaticOnes: the best cuts of several chunks on a stage are no worse
// than those that static balancers make, whatever the head and the sum over replicas.
func TestCutsOfChunksBeatStaticOnes(t *testing.T) {
	for _, kind := range []schedule.Kind{schedule.KindInterleaved, schedule.KindZBInterleaved, schedule.KindZBV} {
		for seed := range uint64(8) {
			c := foldingSettings(kind)
			c.Parallel.Replicas = 4
			costs := alike(cost.Stage{Forward: 1, Input: 1, Weight: 1}, 400)
			draw := random.Keyed(seed)
			for l := range costs.Layers {
				costs.Layers[l].NonZeros = 1e5 * (1 + 9*int64(draw.IntN(2)))
				costs.Layers[l].Bytes.Gradients = 4 * costs.Layers[l].NonZeros
			}
			p := planner(t, c, sim.Uniform(0, 1e8))
			cuts, err := p.Cuts(costs)
			expect.OK(t, err)
			for _, static := range []string{"uniform", "param"} {
				c.Balance.Kind = static
				first, err := planner(t, c, sim.Network{}).First(costs)
				expect.OK(t, err)
				if best, other := p.Seconds(costs, cuts), p.Seconds(costs, first.Cuts); best > other*(1+1e-12) {
					t.Errorf("%s, draw %d: %v s, %s cuts take %v", kind, seed, best, static, other)
				}
			}
		}
	}
}
