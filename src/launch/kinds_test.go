package launch

import (
	"fmt"
	"math"
	"strings"
	"testing"

	_ "dynmo/src/kind" // the settings need the tables of every kind
)

// TestKindsThatChangeNothing: some settings of a kind leave a model as it is, or only change how it
// is stored. Its numbers are then those of the model without the kind, to the bit or within a
// tolerance of losses. Two runs may differ only at the wanted place.
func TestKindsThatChangeNothing(t *testing.T) {
	const noneLeaves = "exit.share=0 exit.threshold=1.5 exit.weight=0 optimizer.decay=0.1 dynamic.kind="
	for _, c := range []struct {
		name, sets, other string
		differ            string  // first difference; "": none
		within            float64 // tolerance of losses, in place of equal bits
	}{
		{"layers freeze at step 4", "dynamic.kind=none", "dynamic.kind=freeze freeze.layers=7", "step 4", 0},
		{"one bucket", "dynamic.kind=none", "dynamic.kind=attention attention.keys=own attention.buckets=1", "", 0},
		{"four buckets", "dynamic.kind=none", "dynamic.kind=attention", "step 0", 0},
		{"no token leaves", noneLeaves + "none", noneLeaves + "exit", "final weights", 0}, // exits have weights too
		{"no token leaves, propagated", noneLeaves + "none", noneLeaves + "exit exit.propagate=true", "final weights", 0},
		// Gradient norms add squares in blocks of another alignment. So clipping may differ in the
		// last bit.
		{"routers with room for all", "dynamic.kind=none", "dynamic.kind=mod mod.route=topk mod.capacity=1 mod.gate=one mod.auxiliary=0", "", 1e-6},
		{"experts that one replica shares out", spread + "dynamic.kind=moe parallel.replicas=1", spread + "dynamic.kind=moe parallel.replicas=1 parallel.experts=local", "", 0},
		{"experts that two replicas share out", spread + "dynamic.kind=moe", spread + "dynamic.kind=moe parallel.experts=local", "", 1e-4},
		{"groups of experts", grouped + "dynamic.kind=moe", grouped + "dynamic.kind=moe model.grain=half", "", 1e-4},
		{"prune and freeze in any order", "prune.every=1 dynamic.kind=prune+freeze " + plastic, "prune.every=1 dynamic.kind=freeze+prune " + plastic, "", 0},
	} {
		if testing.Short() && !strings.HasPrefix(c.name, "prune") {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			got, want := goRun(t, small(t, "parallel.stages=1", chosen, c.other), nil), goRun(t, small(t, "parallel.stages=1", chosen, c.sets), nil)
			if c.within == 0 {
				if at := got.difference(want); at != c.differ {
					t.Errorf("differs at %q, want %q", at, c.differ)
				}
				return
			}
			if c.within < 1e-5 && got.losses[0] != want.losses[0] {
				t.Errorf("first loss %v, want %v", got.losses[0], want.losses[0])
			}
			for step, loss := range got.losses {
				if d := float64(loss - want.losses[step]); !(math.Abs(d) < c.within) {
					t.Errorf("step %d: loss %v, want %v within %v", step, loss, want.losses[step], c.within)
				}
			}
		})
	}
}

// TestPlasticityOnlyFreezes: comparing layers with references changes nothing until one freezes.
func TestPlasticityOnlyFreezes(t *testing.T) {
	c := find(t, "freeze, then thaw").settings(t, 0)
	still := goRun(t, c, nil)
	step, _, _ := strings.Cut(still.frozen[0], " ")
	c.Dynamic.Kind = "none"
	if at := goRun(t, c, nil).difference(still); at != fmt.Sprint("step ", step) {
		t.Errorf("without freezing the run differs at %q, layers freeze at step %s", at, step)
	}
}

// TestBalancersChangeNothing is law 1 with the real balancers. Their decisions follow measured
// times, and differ from run to run.
func TestBalancersChangeNothing(t *testing.T) {
	skipUnlessC(t)
	c := small(t, "parallel.stages=1")
	still := goRun(t, c, nil)
	c.Parallel.Stages = 4
	for i, kind := range []string{"uniform", "param", "regex", "partition", "diffusion"} {
		for _, by := range []string{"time", "param"} {
			for _, clock := range []string{"wall", "virtual"} {
				if !long && (clock == "wall") != (by == "time") && i < 3 {
					continue
				}
				c.Run.Clock, c.Balance.By, c.Balance.Kind, c.Balance.Every = clock, by, kind, []string{"auto", "auto", "auto", "3", "4"}[i]
				t.Run(fmt.Sprintf("%s/%s/%s", clock, kind, by), func(t *testing.T) {
					got := goRun(t, c, nil)
					same(t, got, still)
					if i < 3 && got.moves > 0 {
						t.Errorf("a static balancer moved layers %d times", got.moves)
					}
					if i >= 3 && by == "param" && got.moves == 0 {
						t.Error("no layer moved, though pruning is uneven")
					}
				})
			}
		}
	}
	// Schedules that follow from measured costs change in mid-run.
	for _, schedule := range []string{"list", "auto"} {
		for _, kind := range []string{"uniform", "partition", "diffusion"} {
			if !long && schedule == "auto" && kind == "diffusion" {
				continue // TestLaws covers it
			}
			c.Schedule.Kind, c.Balance.Kind, c.Balance.By, c.Balance.Every = schedule, kind, "time", "3"
			got := goRun(t, c, nil)
			if at := got.difference(still); at != "" {
				t.Errorf("%s, %s: differs from one stage at %s", schedule, kind, at)
			}
			if got.schedules < 3 {
				t.Errorf("%s, %s: the schedule was planned %d times", schedule, kind, got.schedules)
			}
		}
	}
	c.Schedule.Kind, c.Balance.Every, c.Balance.Kind = "1f1b", "auto", "partition"
	if at := goRun(t, c, nil).difference(still); at != "" {
		t.Errorf("balance.every = auto differs from one stage at %s", at)
	}
	c.Balance.Every, c.Balance.By = "3", "param"
	for kind, stages := range map[string]int{"interleaved": 4, "zb-v": 3} {
		c.Schedule.Kind, c.Parallel.Stages = kind, stages
		got := goRun(t, c, nil)
		if at := got.difference(still); at != "" {
			t.Errorf("%s: differs from one stage at %s", kind, at)
		}
		if got.moves == 0 {
			t.Errorf("%s: no layer moved, though pruning is uneven", kind)
		}
	}
}
