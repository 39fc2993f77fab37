package launch

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// TestKindsThatChangeNothing: a kind whose settings leave a model as it is, or change only how
// it is stored, has the numbers of the model without it: to the bit, or within a tolerance of
// losses. Where two runs differ has to be the step that is wanted.
func TestKindsThatChangeNothing(t *testing.T) {
	const noneLeaves = "exit.share=0 exit.threshold=1.5 exit.weight=0 optimizer.decay=0.1 dynamic.kind="
	for _, c := range []struct {
		name, sets, other string
		differ            string  // where; "" for nowhere
		within            float64 // of losses, instead
	}{
		{"layers freeze at step 4", "dynamic.kind=none", "dynamic.kind=freeze freeze.layers=7", "step 4", 0},
		{"one bucket", "dynamic.kind=none", "dynamic.kind=attention attention.buckets=1", "", 0},
		{"four buckets", "dynamic.kind=none", "dynamic.kind=attention", "step 0", 0},
		{"no token leaves", noneLeaves + "none", noneLeaves + "exit", "final weights", 0}, // exits have weights too
		{"no token leaves, propagated", noneLeaves + "none", noneLeaves + "exit exit.propagate=true", "final weights", 0},
		// Gradient norms add squares in blocks of another alignment, so that clipping may differ
		// in the last bit.
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
