package study

import (
	"fmt"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/dynamic"
	"dynmo/src/expect"
	"dynmo/src/plan/plantest"
	"dynmo/src/plan/search"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// TestMemo: runs that share predictions are the runs that share none, with every balancer, on costs
// that change, on microbatches that differ, with delays, on slow ranks, where models are packed and
// where pieces are copied.
func TestMemo(t *testing.T) {
	nodes, slow, delayed := plantest.Link, plantest.Link, plantest.Link
	nodes.PerNode, nodes.Between = 3, sim.Link{Latency: 1e-4, Bandwidth: 1e7}
	slow.Slow = []float64{1, 1.5}
	delayed.Delay = comm.Delay{Most: 3, Seed: 1}
	for i, tc := range []struct {
		schedule schedule.Kind
		dynamism string
		replicas int
		network  sim.Network
		packing  string
	}{
		{schedule.KindZBH1, "prune", 2, nodes, "never"},
		{schedule.KindZBH1, "prune", 1, plantest.Link, "sustain"},
		{schedule.Kind1F1B, "mod", 2, slow, "never"},
		{schedule.KindZBV, "freeze", 2, plantest.Link, "never"},
		{schedule.KindAuto, "exit", 1, delayed, "never"},
		{schedule.KindZBH1, "moe", 4, delayed, "never"},
	} {
		c := plantest.Settings(tc.schedule, 16, 4, 8)
		c.Assign("simulate.routing", "hot-rank", "simulate.experts", 8, "simulate.expert_ranks", 4, "simulate.expert_spare", 1)
		c.Parallel.Replicas, c.Repack.Kind, c.Repack.Tolerance = tc.replicas, tc.packing, 0.05
		memo := new(search.Memo)
		for _, kind := range []string{"uniform", "partition", "diffusion", "partition"} {
			for _, by := range []string{"time", "param"} {
				if c.Balance.Kind, c.Balance.By = kind, by; kind == "diffusion" && tc.schedule == schedule.KindZBV {
					continue
				}
				o := on(c, tc.network)
				series, err := Generate(tc.dynamism, plantest.Chain(16, 0.3, 1), &o, dynamic.MadeUp{Steps: 60, Every: 10}, 1)
				expect.OK(t, err)
				var texts []string
				for _, o.Memo = range []*search.Memo{nil, memo} {
					run := simulated(t, series, o)
					plan, err := Plan(series[len(series)-1].Mean(), o)
					expect.OK(t, err)
					texts = append(texts, fmt.Sprintf("%+v %+v %+v", run.Segments, run.Idle, plan))
				}
				if texts[0] != texts[1] {
					t.Errorf("case %d, %s by %s:\n%s\nand with predictions of other runs\n%s", i, kind, by, texts[0], texts[1])
				}
			}
		}
	}
}
