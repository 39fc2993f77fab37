package launch

import (
	"math"
	"testing"

	"dynmo/src/config"
)

// grouped returns the settings as those of a LLaMA whose blocks are attention and three
// groups of two experts.
func grouped(c config.Config) config.Config {
	c = llama(c)
	c.Model.Grain = "expert"
	c.Assign("moe.groups", 3)
	c.Assign("moe.experts", 6, "moe.top", 2, "moe.intermediate", 24)
	return c
}

// TestExpertGroupsKeepLaw1: groups of experts as layers of their own, alone and with every
// kind of change that composes with them, have the losses, gradient norms and final hash of
// one stage that never moved a layer.
func TestExpertGroupsKeepLaw1(t *testing.T) {
	keepLaw1(t, 31, grouped, []mix{
		{"moe", nil}, {"moe", sBase}, {"moe+mod", dropping}, {"prune+freeze+moe", byPlasticity},
		{"moe+exit", saturation}, {"moe+exit", propagated}, {"moe+attention", ungrouped},
	})
}

// TestExpertGroupsKeepLaw2: a run with groups of experts goes on from a checkpoint, on
// other stages, as if it had never ended; its losses are those of halves of blocks but for
// rounding.
func TestExpertGroupsKeepLaw2(t *testing.T) {
	c := small(t)
	c.Dynamic.Kind, c.Train.Steps, c.Parallel.Stages = "moe", 7, 5
	c = grouped(c)
	whole := goRun(t, c, nil)
	saved := part{dir: t.TempDir(), stop: 3}
	first, _ := trainPart(t, c, saved)
	there := c
	there.Parallel.Stages, there.Schedule.Kind = 2, "zb-v"
	then, _ := trainPart(t, there, part{from: saved.dir})
	if at := joined(first, then).difference(whole); at != "" {
		t.Errorf("differs from an undisturbed run at %s", at)
	}
	there.Assign("moe.groups", 2)
	refused(t, there, saved.dir, `moe.groups: 3 in the checkpoint, 2 here`)
	c.Model.Grain, c.Parallel.Stages = "half", 1
	for step, loss := range goRun(t, c, nil).losses {
		if got := whole.losses[step]; math.Abs(float64(got-loss)) > 1e-4 {
			t.Errorf("step %d: loss %v, with halves of blocks %v", step, got, loss)
		}
	}
}
