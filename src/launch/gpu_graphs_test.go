//go:build cuda && cgo

package launch

import (
	"fmt"
	"testing"

	"dynmo/src/config"
	"dynmo/src/device/cuda"
	"dynmo/src/partition"
	"dynmo/src/plan/policy"
	"dynmo/src/train"
)

// TestGraphsChangeNothing trains with and without CUDA graphs, with pruning (dense, masked and CSR
// layers) and migrations. The bits are equal. Every rank launches most of its passes as graphs, and
// CUDA refuses none.
func TestGraphsChangeNothing(t *testing.T) {
	for _, k := range []struct {
		precision, schedule string
		stages              int
		sets                string
	}{
		{"bf16", "zb-h1", 2, "dynamic.kind=prune"},
		{"bf16", "1f1b", 1, "dynamic.kind=prune+attention model.hidden=32 model.heads=1"}, // heads of 32, on matrix units
		{"bf16", "zb-h1", 2, "dynamic.kind=moe model.grain=expert moe.groups=2 moe.router=mlp moe.capacity=1 " + experts + sBase + "moe.experts=4"},
		{"f32", "1f1b", 2, "dynamic.kind=mod model.grain=block mod.capacity=0.4 " + topk}, // the router decides, without waiting for other tokens
	} {
		t.Run(fmt.Sprintf("%s/P=%d/%s", k.precision, k.stages, k.sets), func(t *testing.T) {
			c := small(t, "device.kind=cuda device.share=true parallel.stages=1 model.blocks=2 model.head_shards=2 model.grain=half attention.buckets=4",
				"train.steps=10 prune.start=1 prune.times=3", k.sets)
			c.Device.Precision, c.Schedule.Kind = k.precision, k.schedule
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

// countedRun trains, moves layers after every sixth step, and counts the graphs of each rank.
func countedRun(t *testing.T, c config.Config) (*run, []cuda.Graphs) {
	t.Helper()
	counts := make([]cuda.Graphs, c.Parallel.Stages)
	s := session{
		balancer: func() policy.Balancer {
			return &script{next: func(step int, now partition.Partition) partition.Partition {
				if step%6 == 5 {
					return scatter(1)(step, now)
				}
				return now
			}}
		},
		end: func(r *rank, _ train.Outcome) error {
			counts[r.World.Rank()] = r.Device.(*cuda.Device).Graphs()
			return nil
		},
	}
	return s.train(t, c), counts
}
