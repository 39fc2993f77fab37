package launch

import (
	"testing"

	"dynmo/src/config"
)

// unchanging returns small's settings without dynamism, so that masters and moments of
// layers that move follow them.
func unchanging(t *testing.T) config.Config {
	t.Helper()
	c := small(t)
	c.Dynamic.Kind, c.Train.Steps = "none", 8
	return c
}

// TestMovesBehindKeepLaw1: where moments arrive while the next step computes, every loss,
// gradient norm and the final hash are those of one stage that never moved a layer.
func TestMovesBehindKeepLaw1(t *testing.T) {
	for i, v := range []struct {
		kind             string
		stages, replicas int
		half             bool
	}{{"1f1b", 4, 2, false}, {"interleaved", 3, 1, true}, {"zb-v", 2, 1, false}, {"zb-h2", 8, 1, true}} {
		c := unchanging(t)
		c.Parallel.Replicas, c.Model.Tied = v.replicas, v.replicas == 2
		if v.half {
			c.Model.Grain, c.Model.HeadShards = "half", 2
		}
		still := goRun(t, c, nil)
		c.Parallel.Stages, c.Schedule.Kind, c.Schedule.Chunks = v.stages, v.kind, 2
		moved := goRun(t, c, scatter(uint64(i)))
		if at := moved.difference(still); at != "" || moved.behind == 0 {
			t.Errorf("%s: moments followed %d moves; differs from one stage at %q", variant(c), moved.behind, at)
		}
	}
}

// TestMovesBehindKeepLaw2: a checkpoint that is written after a move has the moments that
// were still on their way.
func TestMovesBehindKeepLaw2(t *testing.T) {
	c := unchanging(t)
	c.Parallel.Stages = 3
	whole := goRun(t, c, nil)
	for _, at := range []int{1, 4} {
		saved := part{dir: t.TempDir(), stop: at}
		first, _ := trainPart(t, c, saved)
		then := c
		then.Parallel.Stages = 4
		second, _ := trainPart(t, then, part{from: saved.dir})
		if differs := joined(first, second).difference(whole); differs != "" {
			t.Errorf("saved at step %d: differs from an undisturbed run at %s", at, differs)
		}
	}
}
