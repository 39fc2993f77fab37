package study

import (
	"math"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/plan/plantest"
	"dynmo/src/schedule"
)

// TestAsk: of a model whose head costs as much as half of the others the gain is the
// head's; every figure is on the same work.
func TestAsk(t *testing.T) {
	c := plantest.Settings(schedule.Kind1F1B, 16, 4, 8)
	c.Model.HeadShards, c.Model.Blocks = 2, 13
	table := plantest.Chain(16, 0, 0)
	series := WithHead(cost.Series{{Steps: 100, Table: table}}, 2, 3.5)
	a, err := Ask(series, on(c, plantest.Link))
	expect.OK(t, err)
	if a.Better == nil || a.Better.Seconds != min(a.Baselines[0].Seconds, a.Baselines[1].Seconds) {
		t.Errorf("the better baseline is %+v of %+v", a.Better, a.Baselines)
	}
	if want := 7.0 / 21; a.Head.Layers != 2 || math.Abs(a.Head.Share-want) > 1e-12 {
		t.Errorf("head %+v, want a share of %v", a.Head, want)
	}
	if s := a.Head.Small; s == nil || a.Speedup != a.Better.Seconds/a.Seconds || a.Speedup < 1.2 || s.Speedup > 1.15 || s.Ceiling < s.Speedup || !(s.OfGain > 0.5 && s.OfGain <= 1) {
		t.Errorf("%v times as fast; %+v", a.Speedup, a.Head.Small)
	}
	if best := float64(a.Segments[len(a.Segments)-1].StepSeconds); math.Abs(a.Dense.Step/best-1) > 0.01 {
		t.Errorf("a step of the dense model takes %v s, where it ends up %v", a.Dense.Step, best)
	}
	c.Balance.Kind = "param"
	if a, err = Ask(series, on(c, plantest.Link)); err != nil || a.Head.Small != nil || a.Seconds != a.First.Seconds {
		t.Errorf("%v: on static cuts %v s, first %v s, head %+v", err, a.Seconds, a.First.Seconds, a.Head)
	}
}

// TestGain: the share of a gain that a small head takes away.
func TestGain(t *testing.T) {
	for _, c := range []struct{ speedup, small, want float64 }{
		{1.5, 1.1, 0.8}, {1.5, 1.5, 0}, {1.5, 0.9, 1}, {1.5, 1.6, 0}, {1, 1.2, 0}, {0.9, 1, 0},
	} {
		s := Small{Speedup: c.small}
		if s.setGain(c.speedup); math.Abs(s.OfGain-c.want) > 1e-12 {
			t.Errorf("%+v: %v", c, s.OfGain)
		}
	}
}

// TestWithHead: the seconds of the last layers are multiplied. The others and the series itself
// stay.
func TestWithHead(t *testing.T) {
	series := cost.Series{{Steps: 1, Table: plantest.Chain(4, 0, 0)}, {Step: 1, Steps: 1, Table: plantest.Chain(4, 0, 0)}}
	for i, p := range WithHead(series, 2, 3) {
		for l, layer := range p.Layers {
			times := 1.0
			if l > 1 {
				times = 3
			}
			if before := series[i].Layers[l]; math.Abs(layer.Seconds()/before.Seconds()-times) > 1e-12 || layer.Bytes != before.Bytes {
				t.Errorf("phase %d, layer %d: %v s, before %v", i, l, layer.Seconds(), before.Seconds())
			}
		}
	}
}
