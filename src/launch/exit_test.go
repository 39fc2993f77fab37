package launch

import (
	"fmt"
	"testing"

	"dynmo/src/config"
	"dynmo/src/kind/exit"
)

// exiting returns small's settings with tokens that leave behind blocks 2, 4 and 6, more
// and more of them.
func exiting(t *testing.T, kind string) config.Config {
	t.Helper()
	c := small(t)
	c.Dynamic.Kind, c.Train.Steps = kind, 12
	c.Assign("exit.share", 0.7, "exit.start", 2, "exit.until", 8)
	c.Assign("freeze.when", "step", "freeze.layers", 4, "freeze.step", 5)
	return c
}

// TestExitsKeepLaw1: with tokens that leave, by thresholds that move, every loss, gradient
// norm and the final hash are those of one stage that never moved a layer. Under -short
// three of the cases.
func TestExitsKeepLaw1(t *testing.T) {
	for i, v := range []struct {
		kind, confidence string
		replicas         int
		set              func(*config.Config)
	}{
		{"exit", "classifier", 1, func(*config.Config) {}},
		{"exit", "softmax", 2, func(c *config.Config) { c.Model.Tied, c.Model.Grain, c.Model.HeadShards = false, "half", 3 }},
		{"exit", "saturation", 1, func(c *config.Config) { c.Model.Grain, c.Model.HeadShards = "half", 2 }},
		{"exit", "classifier", 1, func(c *config.Config) { c.Assign("exit.share", 0, "exit.threshold", -1) }},
		{"prune+exit", "classifier", 2, func(c *config.Config) { c.Model.HeadShards = 2 }},
		{"freeze+exit", "classifier", 1, func(c *config.Config) { c.Model.Grain = "half" }},
		{"prune+exit", "classifier", 2, func(c *config.Config) {
			c.Model.Grain, c.Model.HeadShards = "half", 3
			c.Assign("exit.propagate", true)
		}},
		{"freeze+exit", "saturation", 1, func(c *config.Config) { c.Assign("exit.propagate", true) }},
	} {
		if testing.Short() && i%4 != 0 {
			continue
		}
		c := exiting(t, v.kind)
		c.Parallel.Replicas = v.replicas
		c.Assign("exit.confidence", v.confidence)
		v.set(&c)
		still := goRun(t, c, nil)
		if still.losses[0] <= still.losses[len(still.losses)-1] {
			t.Errorf("%s: loss from %v to %v", v.kind, still.losses[0], still.losses[len(still.losses)-1])
		}
		places := map[string]int{"1f1b": []int{2, 4, 8}[i%3], "gpipe": 3, "zb-h2": 3, "zb-v": 2, "interleaved": 4}
		for kind, stages := range places {
			if !long && v.replicas == 2 && (kind == "gpipe" || kind == "zb-h2") {
				continue
			}
			c.Parallel.Stages, c.Schedule.Kind, c.Schedule.Chunks = stages, kind, 2
			t.Run(fmt.Sprintf("%s/%s/propagate=%v/D=%d/%s/P=%d", v.kind, v.confidence, config.Of[exit.Settings](c).Propagate, v.replicas, kind, stages), func(t *testing.T) {
				moved := goRun(t, c, scatter(uint64(i)))
				if at := moved.difference(still); at != "" || moved.moves == 0 {
					t.Errorf("%d moves, differs from one stage at %q", moved.moves, at)
				}
			})
		}
	}
}

// TestExitsKeepLaw2: a run with exits that was saved while thresholds move, and went on
// on other stages, has the numbers of one that never ended.
func TestExitsKeepLaw2(t *testing.T) {
	c := exiting(t, "prune+exit")
	c.Parallel.Stages = 3
	whole := goRun(t, c, nil)
	for i, at := range []int{1, 5, 5} {
		if i == 2 {
			c.Assign("exit.propagate", true)
			whole = goRun(t, c, nil)
		}
		saved := part{dir: t.TempDir(), stop: at}
		first, _ := trainPart(t, c, saved)
		then := c
		then.Parallel.Stages, then.Schedule.Kind = 4, "zb-h1"
		second, _ := trainPart(t, then, part{from: saved.dir})
		if differs := joined(first, second).difference(whole); differs != "" {
			t.Errorf("saved at step %d: differs from an undisturbed run at %s", at, differs)
		}
	}
}

// TestExitsThatLetNoneOutAreDense: with a threshold above 1 and no probes a run has the
// losses and norms of one without exits, though its chain is longer.
func TestExitsThatLetNoneOutAreDense(t *testing.T) {
	c := exiting(t, "exit")
	c.Optimizer.Decay = 0.1
	c.Assign("exit.share", 0, "exit.threshold", 1.5, "exit.weight", 0)
	compacting := goRun(t, c, nil)
	c.Assign("exit.propagate", true)
	propagating := goRun(t, c, nil)
	c.Dynamic.Kind = "none"
	dense := goRun(t, c, nil)
	for i, exits := range []*run{compacting, propagating} {
		exits.hash = dense.hash // exits have weights too
		if at := exits.difference(dense); at != "" {
			t.Errorf("propagate=%v: differs from the dense model at %s", i == 1, at)
		}
	}
}
