package launch

import (
	"fmt"
	"testing"

	"dynmo/src/config"
)

// llama returns the settings as those of a LLaMA with two queries for each key, and more
// positions than it was trained for.
func llama(c config.Config) config.Config {
	m := &c.Model
	m.Family, m.Heads, m.KeyValueHeads, m.Intermediate, m.Init = "llama", 4, 2, 40, "gpt2"
	m.RopeScaling, m.RopeOriginal = "llama3", 4
	return c
}

// TestLlamaKeepsLaw1: a LLaMA, alone and with every kind of change that composes with it,
// has the losses, gradient norms and final hash of one stage that never moved a layer.
func TestLlamaKeepsLaw1(t *testing.T) {
	keepLaw1(t, 11, llama, []mix{
		{"none", nil}, {"prune", nil}, {"freeze", byPlasticity}, {"exit", saturation}, {"mod", topk}, {"prune+freeze+mod", nil},
		{"exit+mod", softmax}, {"attention", ungrouped}, {"prune+exit", propagated},
	})
}

// keepLaw1 trains each of the mixes of a model on one stage and, layers scattered anew after
// every step, in one of so many placements, or in all if there is time.
func keepLaw1(t *testing.T, every int, of func(config.Config) config.Config, mixes []mix) {
	t.Helper()
	everywhere := placements()
	for i, m := range mixes {
		if testing.Short() && i > 0 {
			continue
		}
		for _, c := range m.forms(t, i, long) {
			c = of(c)
			if m.set != nil {
				m.set(&c)
			}
			still := goRun(t, c, nil)
			if first, last := still.losses[0], still.losses[len(still.losses)-1]; last >= first {
				t.Errorf("%s: loss from %v to %v", m.name(c), first, last)
			}
			for k, at := range everywhere {
				c, fits := puts(c, at)
				if !fits || !long && k%every != i%every {
					continue
				}
				t.Run(m.name(c), func(t *testing.T) { same(t, goRun(t, c, scatter(uint64(100*i+k))), still) })
			}
		}
	}
}

// ungrouped has as many keys as queries, which hash buckets want.
func ungrouped(c *config.Config) { c.Model.KeyValueHeads = 0 }

// propagated has the states of tokens that left go on, which wants the same.
func propagated(c *config.Config) {
	ungrouped(c)
	c.Assign("exit.propagate", true)
}

// TestLlamaKeepsLaw2: a LLaMA goes on from a checkpoint, on other stages, as if it had
// never ended.
func TestLlamaKeepsLaw2(t *testing.T) {
	c := llama(small(t))
	c.Train.Steps, c.Parallel.Stages, c.Model.Grain = 9, 3, "half"
	whole := goRun(t, c, nil)
	saved := part{dir: t.TempDir(), stop: 5}
	first, _ := trainPart(t, c, saved)
	c.Parallel.Stages, c.Schedule.Kind = 2, "zb-v"
	then, _ := trainPart(t, c, part{from: saved.dir})
	if at := joined(first, then).difference(whole); at != "" {
		t.Errorf("differs from an undisturbed run at %s", at)
	}
	c.Model.RopeScaling = "none"
	refused(t, c, saved.dir, `model.rope_scaling: "llama3" in the checkpoint, "none" here`)
}

// TestMemoryOfLlama: what a rank of a LLaMA has allocated is what plans reckon with: its
// scratch is as wide as its MLP, and rotations have a table.
func TestMemoryOfLlama(t *testing.T) {
	for _, keyed := range []int{1, 4} {
		c := llama(small(t))
		c.Model.Hidden, c.Model.Intermediate, c.Model.KeyValueHeads, c.Model.Tied = 48, 500, keyed, false
		c.Train.Steps, c.Balance.Kind, c.Dynamic.Kind, c.Parallel.Stages = 2, "uniform", "none", 3
		seen := &balances{}
		err := trainLocally(t, c, seen, func(r *rank) error {
			stage := r.World.Rank()
			used, want := float64(r.Device.Used()), float64(seen.last.BytesPerStage[stage]-r.Device.Kept())
			if used > 1.001*want || used < 0.98*want {
				return fmt.Errorf("stage %d uses %v bytes, %v are accounted for", stage, used, want)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%d key-value heads: %v", keyed, err)
		}
	}
}
