package study

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/plan/search"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// meshOptions returns options of a chain on a network on which gradient sums take time.
func meshOptions(t *testing.T, head float64) (Options, costedChain) {
	t.Helper()
	c, costs := chain(4, head)
	c.Parallel.Replicas = 3
	return Options{Config: c, Network: sim.Uniform(1e-6, 5e7), Fixed: search.Fixed(c)}, costedChain{c, costs}
}

// TestMeshesAreTheBest: a search of all plans finds the same meshes with the same steps, and
// plans with a mesh's settings take what the mesh says.
func TestMeshesAreTheBest(t *testing.T) {
	for _, head := range []float64{1, 10} {
		o, c := meshOptions(t, head)
		batch := o.Config.Parallel.Replicas * o.Config.Parallel.Microbatches * o.Config.Parallel.MicrobatchSize
		done, total := int64(0), int64(0)
		best, left, err := Meshes(c.costs, o, 12, batch, func(n, of int64) { done, total = n, of })
		expect.OK(t, err)
		if done == 0 || done != total || len(best) != 5 || len(left) != 0 {
			t.Fatalf("%d of %d plans done, %d meshes, left out %v", done, total, len(best), left)
		}
		weigh := (&meshSearch{have: o.Config}).seconds
		if !slices.IsSortedFunc(best, func(a, b MeshPlan) int { return cmp.Compare(weigh(a), weigh(b)) }) {
			t.Error("meshes out of order")
		}
		for stages := range 13 {
			if stages == 0 || 12%stages != 0 {
				continue
			}
			mesh := slices.IndexFunc(best, func(p MeshPlan) bool { return p.Stages == stages })
			for _, next := range append(finerChains(c.costs, o.Config), o.Config) {
				next.Parallel.Stages, next.Parallel.Replicas = stages, 12/stages
				next.Parallel.Microbatches = batch / (next.Parallel.Replicas * next.Parallel.MicrobatchSize)
				costs := finer(c.costs, o.Config, next)
				for _, kind := range []schedule.Kind{schedule.KindAuto, schedule.KindInterleaved, schedule.KindZBInterleaved} {
					next.Schedule.Kind = string(kind)
					if next.Validate() != nil {
						continue
					}
					again := o
					again.Config, again.Fixed = next, search.Fixed(next)
					p, err := Plan(costs, again)
					expect.OK(t, err)
					seconds := weigh(MeshPlan{Trial: Trial{next, p}})
					switch {
					case mesh >= 0 && best[mesh].Config.Model == next.Model && best[mesh].Config.Schedule == next.Schedule && best[mesh].Seconds != p.Seconds:
						t.Errorf("%v: %v s, planned %v s", best[mesh].Sets, best[mesh].Seconds, p.Seconds)
					case mesh < 0 && seconds < weigh(best[4]):
						t.Errorf("%d stages, %s: %v s, the fifth mesh takes %v s", stages, kind, p.Seconds, best[4].Seconds)
					case mesh >= 0 && kind == schedule.KindAuto && seconds < weigh(best[mesh]):
						t.Errorf("%d stages, %+v: %v s, the mesh takes %v s", stages, next.Model, p.Seconds, best[mesh].Seconds)
					}
				}
			}
		}
	}
}

// TestMeshesLeftOut: meshes are left out with a reason, and where none is left that is the error.
func TestMeshesLeftOut(t *testing.T) {
	o, c := meshOptions(t, 1)
	for _, test := range []struct {
		ranks, batch int
		limit        int64
		meshes       int
		reasons      []string // of the error where no mesh is left
	}{
		{28, 28, 0, 3, []string{"28x1: more stages than the 15 layers of the finest chain", "1x28, 7x4: the batch is no multiple of replicas times parallel.microbatch_size, 8 or more"}},
		{719, 2880, 0, 0, []string{"719x1: more stages than the 15 layers", "1x719: the batch is no multiple of replicas times parallel.microbatch_size, 1438 or more"}},
		{12, 7, 0, 0, []string{"1x12, 2x6, 3x4, 4x3, 6x2, 12x1: the batch is no multiple of replicas times parallel.microbatch_size, 2 or more"}},
		{12, 48, 1_000_000, 3, []string{"1x12, 2x6, 3x4: a stage needs "}},
		{12, 48, 1000, 0, []string{"1x12, 2x6, 3x4, 4x3, 6x2, 12x1: a stage needs ", " bytes or more beyond balance.memory_limit_bytes = 1000"}},
	} {
		o.Config.Balance.MemoryLimitBytes = test.limit
		best, left, err := Meshes(c.costs, o, test.ranks, test.batch, func(_, _ int64) {})
		text := strings.Join(WhyLeftOut(left, test.limit), "; ")
		if (err != nil) != (test.meshes == 0) || err != nil && err.Error() != text || len(best) != test.meshes {
			t.Errorf("%d ranks, %d sequences: %d meshes, error %v, left out: %s", test.ranks, test.batch, len(best), err, text)
		}
		for _, reason := range test.reasons {
			if !strings.Contains(text, reason) {
				t.Errorf("%d ranks, %d sequences: no %q in %s", test.ranks, test.batch, reason, text)
			}
		}
		for _, p := range best {
			if most := p.MeshRow.Bytes; test.limit > 0 && most > test.limit {
				t.Errorf("%v: %d bytes", p.Sets, most)
			}
		}
	}
}
