package study

import (
	"math"
	"reflect"
	"testing"

	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/expect"
	"dynmo/src/plan/plantest"
	"dynmo/src/schedule"
)

// TestSample: by hand.
func TestSample(t *testing.T) {
	for _, c := range []struct {
		name                          string
		steps, start, every, interval int
		want                          Sampling
	}{
		{"few changes", 400, 0, 1, 0, Sampling{}},
		{"many", 10_000, 0, 1, 0, Sampling{40, 28}}, // ⌈9960 / 360⌉
		{"later", 10_100, 100, 1, 0, Sampling{140, 28}},
		{"seldom", 10_000, 0, 100, 0, Sampling{}},
		{"all", 10_000, 0, 1, 1, Sampling{}},
		{"asked for", 100, 0, 1, 5, Sampling{40, 5}},
		{"too short", 40, 0, 1, 5, Sampling{}},
	} {
		if got := sample(c.steps, c.start, c.every, c.interval); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestSampledChangesAreThoseOfTheWholeRun: what is sampled costs what it costs in the whole
// run, and stands for the steps up to the next.
func TestSampledChangesAreThoseOfTheWholeRun(t *testing.T) {
	c, model := assumed(dynamic.MadeUp{Microbatches: 4}), dense(4, false)
	run := dynamic.MadeUp{Steps: 131, Start: 10, Every: 2}
	whole, _, err := Generate("moe", model, c, run, 1)
	expect.OK(t, err)
	part, sampling, err := Generate("moe", model, c, run, 3)
	expect.OK(t, err)
	if want := (Sampling{From: 10 + 2*unsampled, Interval: 3}); sampling != want {
		t.Fatalf("%+v, want %+v", sampling, want)
	}
	steps := 0
	for i, p := range part {
		w := whole[min(i, unsampled+1)]
		if i > unsampled+1 { // behind the dense phase, and as many that are all there
			w = whole[unsampled+1+3*(i-unsampled-1)]
			if left := run.Steps - p.Step; p.Steps != min(6, left) {
				t.Errorf("phase %d stands for %d steps, want %d", i, p.Steps, min(6, left))
			}
		}
		if p.Step != steps || p.Step != w.Step || !reflect.DeepEqual(p.Scale, w.Scale) {
			t.Errorf("phase %d from step %d, want %d and the costs of step %d", i, p.Step, steps, w.Step)
		}
		steps += p.Steps
	}
	if steps != run.Steps {
		t.Errorf("%d steps, want %d", steps, run.Steps)
	}
}

// TestSampledRunEstimatesTheWhole: seconds and what balancing takes of a run that is sampled
// are those of the whole, but for a share that its standard error explains; moves, of
// which there are few, are of its order.
func TestSampledRunEstimatesTheWhole(t *testing.T) {
	c := plantest.Settings(schedule.Kind1F1B, 16, 4, 8)
	c.Model.Sequence, c.Model.Hidden = 2048, 1024
	c.Balance.Every, c.Simulate.Spread = "1", 1
	answers := make([]Run, 2)
	samplings := make([]Sampling, 2)
	for i, interval := range []int{1, 4} {
		series, sampling, err := Generate("moe", plantest.Chain(16, 0, 0), c, dynamic.MadeUp{Steps: 600}, interval)
		expect.OK(t, err)
		o := on(c, plantest.Link)
		o.Sampling, samplings[i] = sampling, sampling
		answers[i] = simulated(t, series, o)
	}
	whole, part := answers[0], answers[1]
	few, _ := part.Moves()
	many, _ := whole.Moves()
	if math.Abs(part.Seconds/whole.Seconds-1) > 0.01 || many < 10 || few < many/3 || few > 3*many || math.Abs(part.Measuring-whole.Measuring) > 1e-9 {
		t.Errorf("%v s with %d moves, %v s of measuring; whole %v s, %d, %v s", part.Seconds, few, part.Measuring, whole.Seconds, many, whole.Measuring)
	}
	if e := part.Error(samplings[1]); !(e > 1e-5 && e < 0.01) || whole.Error(samplings[0]) != 0 || len(part.Segments) > 200 {
		t.Errorf("error %v and %v, %d segments", e, whole.Error(samplings[0]), len(part.Segments))
	}
}

// TestBalancingCosts: measuring and deciding take what the settings say, by the size of
// the pipeline, and nothing where layers never move.
func TestBalancingCosts(t *testing.T) {
	c := plantest.Settings(schedule.Kind1F1B, 16, 4, 8)
	c.Balance.Every = "10"
	c.Simulate.MeasurePass, c.Simulate.DecidePass = 1e-3, 1e-2
	run := simulated(t, shrinking(0.2), on(c, plantest.Link))
	const steps, decisions = 60, 6 + 1 // every 10, and after the second step of the changed model
	if want := steps * 1e-3 * 16 * 8; math.Abs(run.Measuring-want) > 1e-9 {
		t.Errorf("%v s of measuring, want %v", run.Measuring, want)
	}
	if one := 1e-2 * 4 * 8; math.Abs(run.Deciding/one-decisions) > 1.01 || math.Mod(run.Deciding/one+0.5, 1) < 0.49 {
		t.Errorf("%v decisions, want about %d", run.Deciding/one, decisions)
	}
	for name, change := range map[string]func(*config.Config, *Options){
		"free":   func(c *config.Config, _ *Options) { c.Simulate.MeasurePass, c.Simulate.DecidePass = 0, 0 },
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
	if r := moves.Moving / plain.Moving; !(r > 1.05 && r <= 4) || moves.Segments[0].Seconds != plain.Segments[0].Seconds {
		t.Errorf("moves take %v times as long, a step %v s, want %v", r, moves.Segments[0].Seconds, plain.Segments[0].Seconds)
	}
	var first, other Segment
	for i := range min(len(plain.Segments), len(messages.Segments)) {
		if first.Moves == 0 {
			first, other = plain.Segments[i], messages.Segments[i]
		}
	}
	if messages.Segments[0].Seconds <= plain.Segments[0].Seconds || first.Moves == 0 || first.Plan.Cuts.Equal(other.Plan.Cuts) && first.Moving != other.Moving {
		t.Errorf("a step takes %v s, without delays %v; a move %v s, %v", messages.Segments[0].Seconds, plain.Segments[0].Seconds, other.Moving, first.Moving)
	}
}
