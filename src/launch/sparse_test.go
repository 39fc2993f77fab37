package launch

import (
	"fmt"
	"strings"
	"testing"

	"dynmo/src/config"
)

// sparse returns the small settings with attention in buckets, and a sequence that is not
// a multiple of them.
func sparse(t *testing.T, kind string) config.Config {
	c := small(t)
	c.Dynamic.Kind, c.Train.Steps = kind, 8
	c.Assign("attention.buckets", 4)
	c.Assign("prune.start", 2, "prune.every", 2, "prune.times", 2)
	c.Assign("freeze.when", "step", "freeze.layers", 3, "freeze.step", 4)
	return c
}

// TestSparseAttentionKeepsLaw1: in buckets, alone and beside other kinds, every loss,
// gradient norm and the final hash are those of one stage that never moved a layer,
// whatever the schedule, the grain, replicas and slices of the head.
func TestSparseAttentionKeepsLaw1(t *testing.T) {
	for i, v := range []struct {
		kind     string
		replicas int
		half     bool
	}{{"attention", 1, false}, {"attention", 2, true}, {"prune+attention", 1, true}, {"attention+freeze", 2, false}} {
		if testing.Short() && i%2 != 0 {
			continue
		}
		c := sparse(t, v.kind)
		c.Parallel.Replicas, c.Model.HeadShards = v.replicas, 2
		if v.half {
			c.Model.Grain = "half"
		}
		still := goRun(t, c, nil)
		for kind, stages := range map[string]int{"gpipe": 2, "1f1b": 8, "zb-h1": 4, "zb-h2": 3, "zb-v": 2, "interleaved": 4} {
			if !long && (stages+v.replicas)%2 == 0 { // half of them
				continue
			}
			c.Parallel.Stages, c.Schedule.Kind, c.Schedule.Chunks = stages, kind, 2
			t.Run(fmt.Sprintf("%s/D=%d/half=%v/%s", v.kind, v.replicas, v.half, kind), func(t *testing.T) {
				moved := goRun(t, c, scatter(uint64(stages)))
				if at := moved.difference(still); at != "" || moved.moves == 0 {
					t.Errorf("%d moves, differs from one stage at %q", moved.moves, at)
				}
			})
		}
	}
}

// TestOneBucketTrainsAsDense: a run in one bucket has the bits of a run without, and one in
// four has others from the first loss on.
func TestOneBucketTrainsAsDense(t *testing.T) {
	c := sparse(t, "none")
	dense := goRun(t, c, nil)
	c.Dynamic.Kind = "attention"
	if at := goRun(t, c, nil).difference(dense); at != "step 0" {
		t.Errorf("four buckets differ from dense attention at %q, want step 0", at)
	}
	c.Assign("attention.buckets", 1)
	if at := goRun(t, c, nil).difference(dense); at != "" {
		t.Errorf("one bucket differs from dense attention at %q", at)
	}
}

// TestSparseAttentionKeepsLaw2: a run in buckets, pruned too, goes on from a checkpoint on
// other stages with the bits of one that never ended; in other buckets it is refused.
func TestSparseAttentionKeepsLaw2(t *testing.T) {
	c := sparse(t, "prune+attention")
	c.Parallel.Stages = 3
	whole := goRun(t, c, nil)
	saved := part{dir: t.TempDir(), stop: 3}
	first, _ := trainPart(t, c, saved)
	was := c
	c.Parallel.Stages, c.Schedule.Kind = 2, "zb-v"
	then, end := trainPart(t, c, part{from: saved.dir})
	if at := joined(first, then).difference(whole); at != "" || end.Steps != c.Train.Steps {
		t.Errorf("differs from an undisturbed run at %s (%d steps)", at, end.Steps)
	}
	c.Assign("attention.buckets", 8)
	if _, err := c.Resume(was, nil); err == nil || !strings.Contains(err.Error(), "attention.buckets: 4 in the checkpoint, 8 here") {
		t.Errorf("other buckets: %v", err)
	}
}
