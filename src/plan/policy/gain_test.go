package policy

import (
	"math"
	"slices"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/plan"
	"dynmo/src/plan/plantest"
	"dynmo/src/profile"
	"dynmo/src/schedule"
	"dynmo/src/trace"
)

// estimated returns a measurement of costs that are as uncertain as said.
func estimated(t cost.Table, deviation float64) profile.Measurement {
	e := cost.Estimate{Table: t, Layer: slices.Repeat([]float64{deviation}, len(t.Layers)), Stage: make([]float64, 4)}
	for l := range t.Layers {
		e.On = append(e.On, l/4)
	}
	return profile.Measurement{Measurement: cost.Measurement{Table: t}, Estimate: e, Summary: trace.Summary{End: 1}}
}

// large returns heavy(9) with layers that take an hour over the link.
func large() cost.Table {
	t := heavy(9)
	for l := range t.Layers {
		t.Layers[l].Bytes.Parameters = 1 << 36
	}
	return t
}

// TestDecideUnderUncertainty: layers move when the gain exceeds what noise can feign
// and what moving takes, and the reason says which it was.
func TestDecideUnderUncertainty(t *testing.T) {
	for _, c := range []struct {
		name      string
		costs     cost.Table
		deviation float64
		kept      plan.Kept
	}{
		{"sure", heavy(9), 0.001, ""},
		{"uncertain", heavy(9), 0.5, plan.KeptUncertain},
		{"nothing to gain", plantest.Chain(16, 0, 0), 0.001, plan.KeptBest},
		{"not worth moving", heavy(1.02), 0.0001, plan.KeptBest},
		{"dear", large(), 0.001, plan.KeptPrice},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, kind := range []string{"partition", "diffusion"} {
				a := newAsked(t, every("1", kind), 0)
				before := a.now
				why := a.shown(estimated(c.costs, c.deviation))
				if !why.Decided || why.Kept != c.kept || a.now.Equal(before) != (c.kept != "") {
					t.Errorf("%s: %v, kept %q, gain %+v; want %q", kind, a.now.Cuts, why.Kept, why.Gain, c.kept)
				}
			}
		})
	}
}

// TestDecideInDoubt: a rank may have been disturbed. Layers move to cuts that are better whether it
// was or not, if there are any.
func TestDecideInDoubt(t *testing.T) {
	now := func(costs cost.Table, doubtful int, times float64) (before, after layout.Layout, why plan.Reason) {
		a := newAsked(t, every("1", "partition"), 0)
		before = a.now
		for l := 4 * doubtful; l < 4*doubtful+4; l++ {
			costs.Layers[l] = costs.Layers[l].WithSeconds(costs.Layers[l].Stage().Scale(times))
		}
		m := estimated(costs, 0.001)
		m.Estimate.Doubt = make([]float64, 4)
		m.Estimate.Doubt[doubtful] = 1 - 1/times
		why = a.shown(m)
		return before, a.now, why
	}
	// The third stage takes twice as long, or seems to; the first layer is heavy for sure.
	before, after, why := now(heavy(9), 2, 2)
	if after.Equal(before) || after.Cuts.Count(0) >= 4 || why.Gain.Least < surelySaved {
		t.Errorf("one stage in doubt: %v, %+v", after.Cuts, why)
	}
	// Only what is in doubt makes the stages uneven.
	if before, after, why := now(plantest.Chain(16, 0, 0), 0, 9); !after.Equal(before) || why.Kept != plan.KeptUncertain || why.Gain.Expected < plan.WorthMoving {
		t.Errorf("nothing but doubt: %v, %+v", after.Cuts, why)
	}
}

// TestDecideKeepsItsReason: where the order of work follows costs, the reason says why
// layers stay, also where a better order is taken or none is found.
func TestDecideKeepsItsReason(t *testing.T) {
	c := every("1", "partition")
	c.Schedule.Kind = string(schedule.KindList)
	a := newAsked(t, c, 0)
	before := a.now
	for range 3 {
		why := a.after(large(), false)
		if want := plan.KeptPrice; !a.now.Equal(before) {
			if why.Kept != "" || !a.now.Cuts.Equal(before.Cuts) {
				t.Errorf("another order: %+v", why)
			}
		} else if why.Kept != want {
			t.Errorf("kept %q, gain %+v; want %q", why.Kept, why.Gain, want)
		}
		before = a.now
	}
}

// TestDecideOnceCostsAreKnown: the balancer decides nothing while costs are unknown.
func TestDecideOnceCostsAreKnown(t *testing.T) {
	a := newAsked(t, plantest.Settings(schedule.Kind1F1B, 16, 4, 8), 0)
	first := a.now
	unknown := estimated(heavy(9), 0)
	unknown.Estimate.Layer[3] = math.Inf(1)
	for range 5 {
		if why := a.shown(unknown); why.Decided || !a.now.Equal(first) {
			t.Errorf("%+v", why)
		}
	}
	if a.shown(estimated(heavy(9), 0.001)); a.now.Equal(first) {
		t.Error("layers stay once costs are known")
	}
}

// TestDecideAfterAChange: a changed model is balanced after its second step, without
// waiting for the next decision that is due.
func TestDecideAfterAChange(t *testing.T) {
	a := newAsked(t, every("50", "partition"), 0)
	for step := range 20 {
		costs := plantest.Chain(16, 0, 0)
		if step >= 10 {
			costs = heavy(9)
		}
		if why := a.after(costs, step == 10); why.Decided != (step == 1 || step == 11) {
			t.Errorf("step %d: decided %v", step, why.Decided)
		}
	}
}
