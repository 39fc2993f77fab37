package launch

import (
	"fmt"
	"math"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
)

// reshard is a pipeline on which a run is saved or goes on: stages and replicas.
type reshard struct{ stages, replicas int }

// on returns settings for a pipeline, with the same samples in a step.
func (r reshard) on(c config.Config) config.Config {
	c.Parallel.Stages, c.Parallel.Replicas, c.Parallel.Microbatches = r.stages, r.replicas, 4/r.replicas
	return c
}

// TestReshard: a run that was saved on P stages and goes on with Q has the state it was
// saved with, every tensor of it, pruned layers in CSR and moments too, and its first loss
// is that of a run that was never saved. On other replicas, which add in another order, the
// first loss is within 1e-5. Under -short P is Q.
func TestReshard(t *testing.T) {
	const at = 6 // pruned layers are in CSR
	c := small(t)
	c.Train.Steps = 8
	c.Assign("prune.start", 1, "prune.every", 1)
	whole := goRun(t, c, nil)
	ways := []int{1, 2, 3, 4, 8}
	to := make(map[reshard][]reshard)
	for _, p := range ways {
		for _, q := range ways {
			if testing.Short() && p != q {
				continue
			}
			to[reshard{p, 1}] = append(to[reshard{p, 1}], reshard{q, 1})
		}
	}
	to[reshard{4, 1}] = append(to[reshard{4, 1}], reshard{2, 2}, reshard{1, 4})
	to[reshard{2, 2}] = []reshard{{4, 1}, {1, 4}, {2, 2}}
	for from, list := range to {
		first := part{dir: t.TempDir(), stop: at}
		was, end := trainPart(t, from.on(c), first)
		if end.Saved != at || was.hash == "" {
			t.Fatalf("%+v: %+v", from, end)
		}
		for _, to := range list {
			name := fmt.Sprintf("saved=%dx%d loaded=%dx%d", from.stages, from.replicas, to.stages, to.replicas)
			t.Run(name, func(t *testing.T) {
				expect.NewFault(t, "F21", name)
				still := to.on(c)
				still.Train.Steps = at // nothing is trained
				if then, _ := trainPart(t, still, part{from: first.dir}); then.hash != was.hash {
					t.Errorf("state %s, saved as %s", then.hash, was.hash)
				}
				then, _ := trainPart(t, to.on(c), part{from: first.dir, stop: 1})
				got, want := float64(then.losses[0]), float64(whole.losses[at])
				if exact := from.replicas*to.replicas == 1; exact && got != want || !(math.Abs(got/want-1) < 1e-5) {
					t.Errorf("first loss %v, want %v", got, want)
				}
			})
		}
	}
}
