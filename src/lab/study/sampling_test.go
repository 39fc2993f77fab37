package study

import (
	"math"
	"reflect"
	"testing"

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
		if got := sample(c.steps, c.start, c.every, c.interval, 400); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestSampledChangesAreThoseOfTheWholeRun: a sampled step has the costs of that step in the whole
// run, and stands for the steps up to the next.
func TestSampledChangesAreThoseOfTheWholeRun(t *testing.T) {
	c, model := assumed(dynamic.MadeUp{Microbatches: 4}), dense(4, false)
	run := dynamic.MadeUp{Steps: 131, Start: 10, Every: 2}
	const first = mostChanges / 10
	o := Options{Config: c}
	whole, err := Generate("moe", model, &o, run, 1)
	expect.OK(t, err)
	part, err := Generate("moe", model, &o, run, 3)
	expect.OK(t, err)
	if want := (Sampling{From: 10 + 2*first, Interval: 3}); o.Sampling != want {
		t.Fatalf("%+v, want %+v", o.Sampling, want)
	}
	steps := 0
	for i, p := range part {
		w := whole[min(i, first+1)]
		if i > first+1 { // behind the dense phase, and as many that are all there
			w = whole[first+1+3*(i-first-1)]
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

// TestSampledRunEstimatesTheWhole: the seconds and the balancing time of a sampled run are those of
// the whole run, within its standard error. Moves are few, and of the right order.
func TestSampledRunEstimatesTheWhole(t *testing.T) {
	c := plantest.Settings(schedule.Kind1F1B, 16, 4, 8)
	c.Model.Sequence, c.Model.Hidden = 2048, 1024
	c.Balance.Every = "1"
	c.Assign("simulate.mod_noise", 3)
	answers := make([]*Run, 2)
	samplings := make([]Sampling, 2)
	for i, interval := range []int{1, 4} {
		o := on(c, plantest.Link)
		series, err := Generate("mod", plantest.Chain(16, 0, 0), &o, dynamic.MadeUp{Steps: 600}, interval)
		expect.OK(t, err)
		samplings[i] = o.Sampling
		answers[i] = simulated(t, series, o)
	}
	whole, part := answers[0], answers[1]
	moves := func(r *Run) (n int) {
		for _, s := range r.Segments {
			n += s.Moves
		}
		return n
	}
	few, many := moves(part), moves(whole)
	if math.Abs(part.Seconds/whole.Seconds-1) > 0.01 || many < 10 || few < many/3 || few > 3*many || math.Abs(part.Measuring-whole.Measuring) > 1e-9 {
		t.Errorf("%v s with %d moves, %v s of measuring; whole %v s, %d, %v s", part.Seconds, few, part.Measuring, whole.Seconds, many, whole.Measuring)
	}
	if e := part.Error(samplings[1]); !(e > 1e-5 && e < 0.01) || whole.Error(samplings[0]) != 0 || len(part.Segments) > 200 {
		t.Errorf("error %v and %v, %d segments", e, whole.Error(samplings[0]), len(part.Segments))
	}
}
