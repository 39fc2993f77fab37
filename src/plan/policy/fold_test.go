package policy

import (
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/plan"
	"dynmo/src/plan/plantest"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// TestDecideFolds: a balancer moves layers into a V where that pays for the moves, and
// not where it does not; there it stays, and goes on being balanced.
func TestDecideFolds(t *testing.T) {
	one := cost.Stage{Forward: 1, Input: 1, Weight: 1}
	a := newAsked(t, plantest.Folding(schedule.KindAuto), 0)
	if a.now.Map().Vee {
		t.Fatal("the first layout is a V")
	}
	if why := a.after(plantest.Alike(one, 1e12), false); a.now.Map().Vee || why.Kept != "" && why.Kept != plan.KeptPrice {
		t.Errorf("%+v on %+v, though 16 terabytes would move", why, a.now.Map())
	}
	a = newAsked(t, plantest.Folding(schedule.KindAuto), 0)
	if why := a.after(plantest.Alike(one, 400), false); !a.now.Map().Vee || why.Kept != "" || why.Gain.Least < 0.04 || why.Optimum > why.Bottleneck {
		t.Errorf("%+v on %+v, want a V", why, a.now.Map())
	}
	if why := a.after(plantest.Alike(one, 400), false); !a.now.Map().Vee || why.Kept != plan.KeptBest {
		t.Errorf("%+v on %+v, want to stay in the V", why, a.now.Map())
	}
	expect.OK(t, a.now.Check(16))
	slow := plantest.Alike(one, 400)
	slow.Layers[0] = slow.Layers[0].WithSeconds(one.Scale(8e-3))
	before := a.now.Cuts
	if why := a.after(slow, false); a.now.Cuts.Equal(before) {
		t.Errorf("%+v: %v stay, though the first layer takes 8 times as long", why, before)
	}
}

// TestDecideFoldsWhenItPays: where the balancer itself finds out when to decide, it
// finds out that a V pays.
func TestDecideFoldsWhenItPays(t *testing.T) {
	c := plantest.Folding(schedule.KindAuto)
	c.Balance.Every = "auto"
	a := newAsked(t, c, 0)
	costs := plantest.Alike(cost.Stage{Forward: 1, Input: 1, Weight: 1}, 400)
	for step := 0; step < 20 && !a.now.Map().Vee; step++ {
		a.after(costs, false)
	}
	if !a.now.Map().Vee {
		t.Errorf("on %+v after 20 steps", a.now.Map())
	}
}

// TestDecideWhenOtherChunksPay: stages hold several chunks, and the balancer chooses its own
// moments to decide. The exact partition does not know chunks: it gives a long head a chunk of its
// own, which is worse than even cuts. The balancer still finds that other cuts pay.
func TestDecideWhenOtherChunksPay(t *testing.T) {
	costs := plantest.Alike(cost.Stage{Forward: 1, Input: 1, Weight: 1}, 400)
	costs.Layers[15] = costs.Layers[15].WithSeconds(cost.Stage{Forward: 8e-3, Input: 8e-3, Weight: 8e-3})
	for _, kind := range []schedule.Kind{schedule.KindInterleaved, schedule.KindZBInterleaved, schedule.KindZBV} {
		c := plantest.Folding(kind)
		c.Balance.Every = "auto"
		s := begin(problem(t, c, sim.Network{}), costs)
		best, err := s.BestLayout()
		expect.OK(t, err)
		a := newAsked(t, c, 0)
		first := s.Seconds(s.Layout(a.now.Cuts))
		for range 20 {
			a.after(costs, false)
		}
		if best, got := s.Seconds(best), s.Seconds(a.now); first < 1.02*best || got > 1.01*best {
			t.Errorf("%s: a step takes %v s after 20, %v at first; the best cuts found %v", kind, got, first, best)
		}
	}
}
