package launch

import (
	"fmt"
	"testing"
)

// TestBalancersChangeNothing is law 1 with the real balancers, whose decisions
// follow measured times and differ from run to run.
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
				continue // TestLaws has it
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
