package train

import (
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/plan/policy"
	"dynmo/src/schedule"
)

// TestReferenceSurvives: what the dense model took goes on from a checkpoint also where the
// rest of a state does not hold, on other stages; not where seconds are others.
func TestReferenceSurvives(t *testing.T) {
	c := settings(schedule.Kind1F1B, 1, "auto")
	c.Repack.Kind = "sustain"
	run := newFed(t, c)
	for step := range 45 { // layers change before the fortieth
		run.step(t, step)
	}
	known := *run.Balancer.KnownReference()
	if !(known.Seconds > 0) {
		t.Fatalf("%+v of the dense model", known)
	}
	text := string(run.saved(t))
	for _, r := range []struct {
		name string
		set  func(*config.Config)
		text string
		want policy.Reference
		says string
	}{
		{"as it was", func(*config.Config) {}, text, known, ""},
		{"other stages", func(c *config.Config) { c.Parallel.Stages = 2 }, text, known, "[parallel] of the checkpoint differs"},
		{"another packing", func(c *config.Config) { c.Repack.Tolerance = 0.1 }, text, known, "[repack] of the checkpoint differs"},
		{"another network", func(c *config.Config) { c.Comm.LatencySeconds = 1 }, text, policy.Reference{}, "the dense model's seconds are not known: comm.latency_seconds"},
		{"another clock", func(*config.Config) {}, strings.Replace(text, `"clock":"virtual"`, `"clock":"wall"`, 1), policy.Reference{}, "are not known: the clock"},
		{"damaged", func(c *config.Config) { c.Parallel.Stages = 2 }, strings.Replace(text, `"dense":{"reference":`, `"dense":{"reference":-`, 1), policy.Reference{}, "reference: -"},
		{"from before there was one", func(c *config.Config) { c.Parallel.Stages = 2 }, text[:strings.Index(text, `,"dense"`)] + "}", policy.Reference{}, "[parallel] of"},
	} {
		now := c
		r.set(&now)
		f := newFed(t, now)
		if r.says == "" { // the run has packed itself
			f.layout = run.layout
		}
		why, err := f.recall(c, []byte(r.text))
		expect.OK(t, err)
		var got policy.Reference
		if now := f.Balancer.KnownReference(); now != nil {
			got = *now
		}
		got.Seen = r.want.Seen
		if got != r.want || !strings.Contains(why, r.says) || (why == "") != (r.says == "") {
			t.Errorf("%s: %+v, %q, want %+v, %q", r.name, got, why, r.want, r.says)
		}
	}
}
