package launch

import (
	"fmt"
	"math"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
)

// shared returns settings of a mixture of experts that replicas share out.
func shared(t *testing.T) config.Config {
	c := llama(small(t))
	c.Train.Steps, c.Parallel.Stages, c.Model.Grain = 7, 3, "half"
	c.Dynamic.Kind = "moe"
	c.Assign("moe.experts", 4, "moe.top", 3, "parallel.experts", "spread")
	c.Parallel.Replicas, c.Parallel.Microbatches = 2, 2
	return c
}

// TestSpreadExpertsKeepLaw2: experts that replicas share out go on from a checkpoint, on
// other stages, as if the run had never ended.
func TestSpreadExpertsKeepLaw2(t *testing.T) {
	c := shared(t)
	whole := goRun(t, c, nil)
	saved := part{dir: t.TempDir(), stop: 3}
	first, _ := trainPart(t, c, saved)
	c.Parallel.Stages, c.Schedule.Kind = 2, "zb-v"
	then, _ := trainPart(t, c, part{from: saved.dir})
	if at := joined(first, then).difference(whole); at != "" {
		t.Errorf("differs from an undisturbed run at %s", at)
	}
}

// TestSpreadExpertsReshard: a run that was saved with experts on some replicas and goes on
// with them on others, or with all on each, has the state that it was saved with, every
// tensor of it, and its first loss within 1e-5 of that of a run that was never saved.
func TestSpreadExpertsReshard(t *testing.T) {
	const at = 3
	c := shared(t)
	c.Model.Blocks, c.Train.Steps = 3, 5
	c.Dynamic.Kind = "freeze+moe"
	c.Assign("freeze.when", "step", "freeze.layers", 3, "freeze.step", 2)
	whole := goRun(t, reshard{1, 1}.on(c), nil)
	type way struct {
		reshard
		experts string
	}
	on := func(w way) config.Config {
		c := w.on(c)
		c.Assign("parallel.experts", w.experts)
		return c
	}
	for from, list := range map[way][]way{
		{reshard{2, 2}, "spread"}: {{reshard{1, 2}, "spread"}, {reshard{2, 1}, "local"}, {reshard{1, 4}, "spread"}, {reshard{2, 2}, "local"}},
		{reshard{1, 4}, "spread"}: {{reshard{3, 2}, "spread"}, {reshard{2, 1}, "spread"}},
		{reshard{2, 1}, "local"}:  {{reshard{1, 2}, "spread"}, {reshard{2, 4}, "spread"}},
	} {
		first := part{dir: t.TempDir(), stop: at}
		was, _ := trainPart(t, on(from), first)
		for _, to := range list {
			name := fmt.Sprintf("saved=%dx%d-%s loaded=%dx%d-%s", from.stages, from.replicas, from.experts, to.stages, to.replicas, to.experts)
			t.Run(name, func(t *testing.T) {
				expect.NewFault(t, "F21", name)
				still := on(to)
				still.Train.Steps = at // nothing is trained
				if then, _ := trainPart(t, still, part{from: first.dir}); then.hash != was.hash {
					t.Errorf("state %s, saved as %s", then.hash, was.hash)
				}
				then, _ := trainPart(t, on(to), part{from: first.dir, stop: 1})
				if got, want := float64(then.losses[0]), float64(whole.losses[at]); !(math.Abs(got/want-1) < 1e-5) {
					t.Errorf("first loss %v, want %v", got, want)
				}
			})
		}
	}
}
