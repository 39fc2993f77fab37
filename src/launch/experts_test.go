package launch

import (
	"testing"

	"dynmo/src/config"
)

func sBase(c *config.Config)    { c.Moe.Balance = "s-base" }
func dropping(c *config.Config) { c.Moe.Capacity = 0.7; c.Mod.Route = "topk" }

// TestExpertsKeepLaw1: a mixture of experts, alone and with every kind of change that
// composes with it, has the losses, gradient norms and final hash of one stage that never
// moved a layer.
func TestExpertsKeepLaw1(t *testing.T) {
	keepLaw1(t, 7, func(c config.Config) config.Config {
		c = llama(c)
		c.Moe.Experts, c.Moe.Top, c.Moe.Intermediate = 5, 2, 24
		return c
	}, []mix{
		{"moe", nil}, {"moe", sBase}, {"moe+mod", dropping}, {"prune+moe", nil}, {"freeze+moe", byPlasticity},
		{"moe+exit", saturation}, {"moe+exit", propagated}, {"moe+attention", ungrouped}, {"prune+freeze+moe+exit+mod", nil},
	})
}

// TestExpertsKeepLaw2: a mixture of experts goes on from a checkpoint, on other stages, as
// if it had never ended.
func TestExpertsKeepLaw2(t *testing.T) {
	c := llama(small(t))
	c.Train.Steps, c.Parallel.Stages, c.Model.Grain = 7, 3, "half"
	c.Dynamic.Kind, c.Moe.Experts, c.Moe.Top = "moe", 4, 3
	whole := goRun(t, c, nil)
	saved := part{dir: t.TempDir(), stop: 3}
	first, _ := trainPart(t, c, saved)
	c.Parallel.Stages, c.Schedule.Kind = 2, "zb-v"
	then, _ := trainPart(t, c, part{from: saved.dir})
	if at := joined(first, then).difference(whole); at != "" {
		t.Errorf("differs from an undisturbed run at %s", at)
	}
	c.Moe.Top = 2
	refused(t, c, saved.dir, `moe.top: 3 in the checkpoint, 2 here`)
}
