package launch

import (
	"fmt"
	"slices"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/plan/search"
	"dynmo/src/record"
)

// planned returns settings and the first layout. The settings' memory limit lies between the bytes
// of a stage that recomputes all blocks and of one that recomputes none.
func planned(t *testing.T, c config.Config) (config.Config, layout.Layout) {
	t.Helper()
	first := func(c config.Config) (layout.Layout, int64) {
		p, err := search.Configured(c)
		expect.OK(t, err)
		step := p.Step(search.Dense(c), layout.Layout{})
		l, err := step.FirstLayout()
		expect.OK(t, err)
		return l, slices.Max(step.Bytes(l))
	}
	c.Model.Recompute = "none"
	_, most := first(c)
	c.Model.Recompute = "block"
	_, least := first(c)
	c.Model.Recompute, c.Balance.MemoryLimitBytes = "plan", (most+2*least)/3
	l, bytes := first(c)
	if bytes > c.Balance.MemoryLimitBytes || len(l.Twice) == 0 {
		t.Fatalf("of the layers %v compute twice, and a stage needs %d bytes of %d, %d without and %d with all", l.Twice, bytes, c.Balance.MemoryLimitBytes, most, least)
	}
	return c, l
}

// TestPlannedRecompute: a plan chooses the layers that recompute, in the first layout and with
// every decision. The run has the bits of one that recomputes nothing. So has a run that resumes
// with another choice.
func TestPlannedRecompute(t *testing.T) {
	for i, kind := range []string{"1f1b", "auto", "gpipe"} {
		c := small(t, "dynamic.kind=none train.steps=8 parallel.stages=3 parallel.replicas=1 balance.every=2 model.sequence=32")
		c.Schedule.Kind = kind
		still := goRun(t, onOne(c), nil)
		limited, _ := planned(t, c)
		t.Run(kind, func(t *testing.T) { same(t, goRun(t, limited, nil), still) })
		if i > 0 && !long {
			continue
		}
		accounted(t, limited, nil, 0.98, 1.02, func(r *rank, last record.Metrics) []int64 {
			bytes := slices.Clone(last.BytesPerStage)
			bytes[r.World.Rank()] -= r.Device.Kept() // memory of layers that have left
			return bytes
		})
		saved := session{dir: t.TempDir(), stop: 3}
		first := saved.train(t, limited)
		for _, now := range []string{"none", "block"} {
			t.Run(fmt.Sprintf("%s/then %s", kind, now), func(t *testing.T) {
				then, c := session{from: saved.dir}, c
				c.Model.Recompute = now
				if at := joined(first, then.train(t, c)).difference(still); at != "" {
					t.Errorf("differs from an undisturbed run at %s", at)
				}
			})
		}
	}
}
