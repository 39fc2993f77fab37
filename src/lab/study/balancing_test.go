package study

import (
	"math"
	"slices"
	"testing"

	"dynmo/src/config"
	"dynmo/src/plan/plantest"
	"dynmo/src/schedule"
)

// TestBalancingCosts: measuring and deciding take the times of real runs, by the size of the
// pipeline. They take nothing where layers never move.
func TestBalancingCosts(t *testing.T) {
	const steps, decisions = 60, 6 + 1 // every 10, and after the second step of the changed model
	for name, decision := range map[string]float64{"partition": decidePass * 4 * 8, "diffusion": diffuseStage * 4} {
		c := plantest.Settings(schedule.Kind1F1B, 16, 4, 8)
		c.Balance.Every, c.Balance.Kind, c.Parallel.Replicas = "10", name, 3
		c.Simulate.Measuring, c.Simulate.Deciding = 2, 3
		run := simulated(t, shrinking(0.2), on(c, plantest.Link))
		one := measureStep + 4*measureStage + 2*measureLevel + 16*8*measurePass + 8*plantest.Link.Node.Latency // up and down two levels of stages and two of replicas
		if want := 2 * steps * one; math.Abs(run.Measuring/want-1) > 1e-9 {
			t.Errorf("%s: %v s of measuring, want %v", name, run.Measuring, want)
		}
		if n := run.Deciding / (3 * decision); math.Abs(n-decisions) > 1+1e-6 || math.Abs(n-math.Round(n)) > 1e-6 {
			t.Errorf("%s: %v decisions, want about %d", name, n, decisions)
		}
	}
	c := plantest.Settings(schedule.Kind1F1B, 16, 4, 8)
	for name, change := range map[string]func(*config.Config, *Options){
		"free":   func(c *config.Config, _ *Options) { c.Simulate.Measuring, c.Simulate.Deciding = 0, 0 },
		"static": func(_ *config.Config, o *Options) { o.Static = true },
		"param":  func(c *config.Config, _ *Options) { c.Balance.Kind = "param" },
	} {
		o := on(c, plantest.Link)
		change(&o.Config, &o)
		if run := simulated(t, shrinking(0.2), o); run.Measuring+run.Deciding != 0 {
			t.Errorf("%s: %v s of measuring, %v s of deciding", name, run.Measuring, run.Deciding)
		}
	}
}

// TestAdaptiveDecisionsCost: decisions that also seek an order take longer, zb-v's too. Decisions
// on two chunks on a stage take still longer. The present layout counts.
func TestAdaptiveDecisionsCost(t *testing.T) {
	for kind, one := range map[schedule.Kind]float64{
		schedule.Kind1F1B: decidePass * 4 * 8, schedule.KindInterleaved: decidePass * 8 * 8, schedule.KindZBV: veePass * 8 * 8,
	} {
		c := plantest.Settings(kind, 16, 4, 8)
		c.Balance.Every = "10"
		run := simulated(t, shrinking(0.2), on(c, plantest.Link))
		if n := run.Deciding / one; n < 1 || math.Abs(n-math.Round(n)) > 1e-6 || run.Measuring == 0 {
			t.Errorf("%s: %v decisions, %v s of measuring", kind, n, run.Measuring)
		}
	}
	c := plantest.Settings(schedule.KindAuto, 16, 4, 8)
	c.Balance.Every = "10"
	run := simulated(t, shrinking(0.2), on(c, plantest.Link))
	for _, s := range run.Segments {
		one := adaptPass * 4 * 8
		if s.Vee {
			one = veePass * 8 * 8
		}
		if n := float64(s.BalanceSeconds-s.MeasureSeconds-s.MoveSeconds) * float64(s.Steps) / one; math.Abs(n-math.Round(n)) > 1e-6 {
			t.Errorf("auto, step %d, in a V: %v: %v decisions", s.Step, s.Vee, n)
		}
	}
	c.Balance.Kind, c.Schedule.Kind = "uniform", "zb-v" // layers stay, their order is sought anew
	if run := simulated(t, shrinking(0.2), on(c, plantest.Link)); run.Measuring == 0 || run.Deciding == 0 {
		t.Errorf("zb-v on static cuts: %v s of measuring, %v s of decisions", run.Measuring, run.Deciding)
	}
}

// TestMovesAreDelayedApart: delays of moves lengthen moves and no step, those of messages
// steps and no move.
func TestMovesAreDelayedApart(t *testing.T) {
	c := plantest.Settings(schedule.Kind1F1B, 16, 4, 8)
	c.Balance.Every, c.Parallel.Replicas = "10", 2
	plain := simulated(t, shrinking(0.2), on(c, plantest.Link))
	slow := c
	slow.Simulate.MoveDelayMost = 4
	moves := simulated(t, shrinking(0.2), on(slow, plantest.Link))
	network := plantest.Link
	network.Delay.Most = 4
	messages := simulated(t, shrinking(0.2), on(c, network))
	if r := moves.Moving / plain.Moving; !(r > 1.05 && r <= 4) || moves.Segments[0].StepSeconds != plain.Segments[0].StepSeconds {
		t.Errorf("moves take %v times as long, a step %v s, want %v", r, moves.Segments[0].StepSeconds, plain.Segments[0].StepSeconds)
	}
	first := func(r *Run) (cuts []int, seconds float64) { // of the first move
		i := slices.IndexFunc(r.Segments, func(s Segment) bool { return s.Moves > 0 })
		before := r.Segments[i-1]
		return r.Segments[i].Cuts, float64(before.MoveSeconds) * float64(before.Steps)
	}
	cuts, one := first(plain)
	others, other := first(messages)
	if messages.Segments[0].StepSeconds <= plain.Segments[0].StepSeconds || one == 0 || slices.Equal(cuts, others) && math.Abs(one-other) > 1e-12 {
		t.Errorf("a step takes %v s, without delays %v; a move %v s, %v", messages.Segments[0].StepSeconds, plain.Segments[0].StepSeconds, other, one)
	}
}
