package launch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
)

// TestFreezingKeepsLaw1: with layers that freeze in mid-run every loss, gradient
// norm and the final hash are those of one stage that never moved a layer, and from
// that step on others than those of a run that freezes nothing.
func TestFreezingKeepsLaw1(t *testing.T) {
	for i, of := range [][2]int{{1, 7}, {2, 1}, {1, 11}} { // the last: all
		if testing.Short() && i > 0 {
			continue
		}
		replicas, layers := of[0], of[1]
		c := small(t)
		c.Parallel.Replicas, c.Model.HeadShards, c.Train.Steps = replicas, 2, 10
		c.Dynamic.Kind = "none"
		free := goRun(t, c, nil)
		c.Dynamic.Kind = "freeze"
		c.Assign("freeze.when", "step", "freeze.layers", layers, "freeze.step", 4)
		still := goRun(t, c, nil)
		if at := still.difference(free); at != "step 4" {
			t.Errorf("%d layers freeze at step 4, the run differs at %q", layers, at)
		}
		for kind, stages := range map[string]int{"1f1b": 4, "zb-h2": 3, "zb-v": 2, "interleaved": 4} {
			c.Parallel.Stages, c.Schedule.Kind, c.Schedule.Chunks = stages, kind, 2
			t.Run(fmt.Sprintf("D=%d/layers=%d/%s", replicas, layers, kind), func(t *testing.T) {
				moved := goRun(t, c, scatter(uint64(layers)))
				if at := moved.difference(still); at != "" || moved.moves == 0 {
					t.Errorf("%d moves, differs from one stage at %q", moved.moves, at)
				}
			})
		}
	}
}

// plastic returns settings of a run whose layers freeze by their plasticity, and thaw once,
// in few steps.
func plastic(t *testing.T) config.Config {
	c := small(t)
	c.Train.Steps = 20
	c.Dynamic.Kind = "freeze"
	c.Assign("freeze.start", 1, "freeze.every", 1, "freeze.reference", 1, "freeze.average", 1, "freeze.window", 2)
	c.Assign("freeze.tolerance", 0.3, "freeze.thaw", 3)
	return c
}

// TestPlasticityKeepsLaw1: which layers freeze by their plasticity, and when they thaw,
// does not depend on where they lie, nor does any number of the run; pruned layers too.
func TestPlasticityKeepsLaw1(t *testing.T) {
	for i, of := range []struct {
		replicas    int
		kind, grain string
	}{
		{1, "freeze", "block"}, {2, "freeze+prune", "block"}, {1, "prune+freeze", "half"},
	} {
		if testing.Short() && i > 0 {
			continue
		}
		c := plastic(t)
		c.Dynamic.Kind, c.Parallel.Replicas, c.Model.Grain = of.kind, of.replicas, of.grain
		still := goRun(t, c, nil)
		if of.kind == "freeze" { // evaluating changes nothing
			first, _, _ := strings.Cut(still.frozen[0], " ")
			c := c
			c.Dynamic.Kind = "none"
			if at := goRun(t, c, nil).difference(still); at != "step "+first {
				t.Errorf("without freezing the run differs at %q, layers freeze at step %s", at, first)
			}
		}
		if all := strings.Join(still.frozen, ", "); !strings.Contains(all, "thaw") || len(still.frozen) < 5 {
			t.Fatalf("%s: %s: want layers that freeze, one after the other, and thaw", of.kind, all)
		}
		for stages, kind := range map[int]string{2: "zb-v", 3: "zb-h2", 4: "interleaved", 8: "1f1b"} {
			if !long && (stages+of.replicas)%2 == 1 {
				continue
			}
			c.Parallel.Stages, c.Schedule.Kind, c.Schedule.Chunks = stages, kind, 2
			t.Run(fmt.Sprintf("D=%d/%s/%s/%s", of.replicas, of.kind, of.grain, kind), func(t *testing.T) {
				moved := goRun(t, c, scatter(uint64(stages)))
				if at := moved.difference(still); at != "" || moved.moves == 0 {
					t.Errorf("%d moves, differs from one stage at %q", moved.moves, at)
				}
				if !slices.Equal(moved.frozen, still.frozen) {
					t.Errorf("changes %q, of one stage %q", moved.frozen, still.frozen)
				}
			})
		}
	}
}

// TestPlasticityKeepsLaw2: a run that was saved between two evaluations, frozen or just
// thawed, goes on from there on other stages as if it had never ended.
func TestPlasticityKeepsLaw2(t *testing.T) {
	c := plastic(t)
	c.Parallel.Stages = 3
	whole := goRun(t, c, nil)
	for stop, stages := range map[int]int{2: 1, 7: 2, 12: 4, 17: 5} {
		saved := part{dir: t.TempDir(), stop: stop}
		first, _ := trainPart(t, c, saved)
		c := c
		c.Parallel.Stages = stages
		then, end := trainPart(t, c, part{from: saved.dir})
		if at := joined(first, then).difference(whole); at != "" || end.Steps != c.Train.Steps {
			t.Errorf("saved after step %d: differs from an undisturbed run at %s (%d steps)", stop, at, end.Steps)
		}
	}
}

// TestKindsInAnyOrder: it does not matter which of two kinds is named first, also in steps
// in which layers are pruned and evaluated.
func TestKindsInAnyOrder(t *testing.T) {
	c := plastic(t)
	c.Assign("prune.start", 2, "prune.every", 1, "prune.times", 12, "prune.csr_from", "0.5")
	var first *run
	for _, kind := range []string{"prune+freeze", "freeze+prune"} {
		c.Dynamic.Kind = kind
		got := goRun(t, c, nil)
		if first == nil {
			first = got
		}
		if at := got.difference(first); at != "" || len(got.frozen) != len(first.frozen) {
			t.Errorf("%s: differs from the other order at %q: %v, want %v", kind, at, got.frozen, first.frozen)
		}
	}
	if len(first.frozen) == 0 {
		t.Error("no layer froze")
	}
}
