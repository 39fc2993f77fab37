package launch

import (
	"fmt"
	"testing"
)

// TestFreezingKeepsLaw1: with layers that freeze in mid-run every loss, gradient
// norm and the final hash are those of one stage that never moved a layer, and from
// that step on others than those of a run that freezes nothing.
func TestFreezingKeepsLaw1(t *testing.T) {
	for replicas, layers := range map[int]int{1: 7, 2: 1} {
		c := small(t)
		c.Parallel.Replicas, c.Model.HeadShards, c.Train.Steps = replicas, 2, 10
		c.Dynamic.Kind = "none"
		free := goRun(t, c, nil)
		c.Dynamic.Kind, c.Freeze.Layers, c.Freeze.Step = "freeze", layers, 4
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
