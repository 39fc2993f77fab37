//go:build cuda && cgo

package launch

import (
	"fmt"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/device/cuda"
	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/record"
)

// TestGraphsChangeNothing trains with pruning, through dense, masked and CSR
// layers, and migrations, with and without CUDA graphs: equal bits. Every rank
// launches most of its passes as graphs, and CUDA refuses none.
func TestGraphsChangeNothing(t *testing.T) {
	for _, k := range []struct {
		precision, schedule string
		stages              int
		kind                string
	}{{"f32", "1f1b", 1, "prune"}, {"bf16", "zb-h1", 2, "prune"}, {"bf16", "1f1b", 2, "prune+attention"}, {"bf16", "zb-h1", 2, "moe"}, {"bf16", "1f1b", 2, "mod"}} {
		t.Run(fmt.Sprintf("%s/P=%d/%s", k.precision, k.stages, k.kind), func(t *testing.T) {
			c := small(t)
			c.Device.Kind, c.Device.Precision, c.Device.Share = "cuda", k.precision, true
			c.Model.Blocks, c.Model.HeadShards, c.Model.Grain = 2, 2, "half"
			c.Parallel.Stages, c.Schedule.Kind = k.stages, k.schedule
			c.Dynamic.Kind = k.kind
			c.Assign("attention.buckets", 4)
			switch k.kind {
			case "moe": // on one stage without graphs, on two with them
				c = llama(c)
				c.Model.Grain = "expert"
				c.Assign("moe.groups", 2, "moe.balance", "s-base", "moe.router", "mlp")
				c.Assign("moe.experts", 4, "moe.top", 2, "moe.intermediate", 24, "moe.capacity", 1)
				c.Parallel.Stages = 1
			case "mod": // the router decides, so that nothing waits
				c.Model.Grain = "block"
				c.Assign("mod.route", "topk", "mod.capacity", 0.4)
			case "prune+attention": // heads of 32, on matrix units
				c.Model.Hidden, c.Model.Heads = 32, 1
			}
			c.Device.Graphs = false
			plain, counts := countedRun(t, c)
			c.Parallel.Stages = k.stages
			for rank, n := range counts {
				if n != (cuda.Graphs{}) {
					t.Errorf("rank %d without graphs: %+v", rank, n)
				}
			}
			c.Device.Graphs = true
			graphs, counts := countedRun(t, c)
			if at := graphs.difference(plain); at != "" {
				t.Errorf("differs from training without graphs at %s", at)
			}
			for rank, n := range counts {
				t.Logf("rank %d: %+v", rank, n)
				if n.Refused != 0 || n.Launched < 2*n.Captured || n.Captured == 0 {
					t.Errorf("rank %d: %+v, want graphs that are launched again, and none refused", rank, n)
				}
			}
		})
	}
}

// countedRun trains, moves layers after every tenth step, and counts the graphs of
// each rank.
func countedRun(t *testing.T, c config.Config) (*run, []cuda.Graphs) {
	t.Helper()
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	expect.OK(t, err)
	out, counts := &run{}, make([]cuda.Graphs, c.Parallel.Stages)
	err = local.Run(c.Parallel.Stages, func(tr comm.Transport) error {
		r, err := newRank(c, tr, Hooks{
			Stop:  func() bool { return false },
			Begin: func(World) (record.Observer, error) { return out, nil },
		}, func() (*data.Corpus, error) { return corpus, nil })
		if err != nil {
			return err
		}
		defer r.Close()
		r.Balancer = &script{next: func(step int, now partition.Partition) partition.Partition {
			if step%10 == 9 {
				return scatter(1)(step, now)
			}
			return now
		}}
		o, err := r.Loop()
		if tr.Rank() == 0 {
			out.hash = o.Hash
		}
		counts[tr.Rank()] = r.Device.(*cuda.Device).Graphs()
		return err
	})
	expect.OK(t, err)
	return out, counts
}
