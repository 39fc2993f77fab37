package launch

import (
	"fmt"
	"math"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
)

// reshard is a mesh on which a run is saved or resumes: stages and replicas, and the place of
// experts, if any.
type reshard struct {
	stages, replicas int
	experts          string
}

// on returns settings for the mesh, with the same samples in a step.
func (r reshard) on(c config.Config) config.Config {
	c.Parallel.Stages, c.Parallel.Replicas, c.Parallel.Microbatches = r.stages, r.replicas, 4/r.replicas
	if r.experts != "" {
		c.Assign("parallel.experts", r.experts)
	}
	if r.replicas == 1 || r.experts == "local" {
		c.Assign("moe.spare", 0)
	}
	return c
}

// TestReshard: a run is saved on P stages and continues on Q, or with its experts on other
// replicas. It has the state that was saved, every tensor of it, pruned layers in CSR and moments
// too. Its first loss is that of a run that was never saved. Other replicas add in another order,
// so there the first loss is within 1e-5. DYNMO_LONG=1 runs all P and Q.
func TestReshard(t *testing.T) {
	dense := func(stages, replicas int) reshard { return reshard{stages, replicas, ""} }
	ways := []int{1, 2, 3, 4, 8}
	to := make(map[reshard][]reshard)
	for i, p := range ways {
		for j, q := range ways {
			if long || j == (i+2)%len(ways) || i == j && p == 2 {
				to[dense(p, 1)] = append(to[dense(p, 1)], dense(q, 1))
			}
		}
	}
	to[dense(4, 1)] = append(to[dense(4, 1)], dense(2, 2), dense(1, 4))
	to[dense(2, 2)] = []reshard{dense(4, 1), dense(1, 4), dense(2, 2)}
	// Pruned layers are in CSR in the checkpoint.
	goesOn(t, small(t, "parallel.stages=1 train.steps=8 prune.start=1 prune.every=1"), 6, to)
	if testing.Short() {
		return
	}
	goesOn(t, small(t, chosen, spread, "dynamic.kind=freeze+moe model.blocks=3 model.grain=half moe.experts=4 moe.top=3 train.steps=5 freeze.step=2"), 3, map[reshard][]reshard{
		{2, 2, "spread"}: {{1, 2, "spread"}, {2, 1, "local"}, {1, 4, "spread"}, {2, 2, "local"}},
		{1, 4, "spread"}: {{3, 2, "spread"}, {2, 1, "spread"}},
		{2, 1, "local"}:  {{1, 2, "spread"}, {2, 4, "spread"}},
	})
	goesOn(t, small(t, chosen, spread, copies, "dynamic.kind=moe model.blocks=3 moe.experts=5 moe.top=3 train.steps=5"), 3, map[reshard][]reshard{
		{2, 2, "spread"}: {{1, 4, "spread"}, {2, 1, "local"}, {2, 2, "spread"}, {2, 2, "local"}},
		{1, 4, "spread"}: {{3, 2, "spread"}},
	})
}

// goesOn saves a run after the given number of steps and continues it elsewhere.
func goesOn(t *testing.T, c config.Config, at int, ways map[reshard][]reshard) {
	t.Helper()
	whole := goRun(t, reshard{1, 1, ""}.on(c), nil)
	for from, list := range ways {
		first := session{dir: t.TempDir(), stop: at, balancer: scattered(1)}
		was := first.train(t, from.on(c))
		if first.outcome.Saved != at || was.hash == "" {
			t.Fatalf("%+v: %+v", from, first.outcome)
		}
		for _, to := range list {
			name := fmt.Sprintf("saved=%dx%d%s loaded=%dx%d%s", from.stages, from.replicas, from.experts, to.stages, to.replicas, to.experts)
			t.Run(name, func(t *testing.T) {
				expect.NewFault(t, "F21", name)
				still := to.on(c)
				still.Train.Steps = at // no further step is trained
				if then := (&session{from: first.dir}).train(t, still); then.hash != was.hash {
					t.Errorf("state %s, saved as %s", then.hash, was.hash)
				}
				then := (&session{from: first.dir, stop: 1}).train(t, to.on(c))
				got, want := float64(then.losses[0]), float64(whole.losses[at])
				if exact := from.replicas*to.replicas == 1; exact && got != want || !(math.Abs(got/want-1) < 1e-5) {
					t.Errorf("first loss %v, want %v", got, want)
				}
			})
		}
	}
}
