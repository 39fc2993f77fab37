package launch

import (
	"fmt"
	"testing"
)

// TestShardedResume: a run whose replicas share out masters and moments resumes as a run whose
// replicas each have all, and the other way round. It has the bits of a run that never ended.
func TestShardedResume(t *testing.T) {
	c := small(t, wide, "dynamic.kind=none train.steps=6 model.blocks=4 parallel.stages=2 parallel.replicas=3 model.head_shards=2")
	c.Optimizer.Shard = false
	still := goRun(t, c, nil)
	for _, was := range []bool{false, true} {
		c.Optimizer.Shard = was
		saved := session{dir: t.TempDir(), stop: 3, balancer: scattered(2)}
		first := saved.train(t, c)
		for _, now := range []bool{false, true} {
			t.Run(fmt.Sprintf("saved=%v/loaded=%v", was, now), func(t *testing.T) {
				c := c
				c.Optimizer.Shard = now
				then := session{from: saved.dir, balancer: scattered(5)}
				if at := joined(first, then.train(t, c)).difference(still); at != "" {
					t.Errorf("differs from an undisturbed run at %s", at)
				}
			})
		}
	}
}

// TestShardedReshard: slices are cut anew if a run resumes with another number of replicas, also
// those of spread experts.
func TestShardedReshard(t *testing.T) {
	goesOn(t, small(t, wide, "dynamic.kind=none parallel.stages=1 train.steps=6 model.blocks=3"), 4, map[reshard][]reshard{
		{2, 2, ""}: {{4, 1, ""}, {1, 4, ""}},
		{1, 4, ""}: {{2, 2, ""}},
		{2, 1, ""}: {{1, 2, ""}},
	})
	goesOn(t, small(t, spread, wide, "dynamic.kind=moe model.blocks=2 moe.experts=4 train.steps=4"), 2, map[reshard][]reshard{
		{1, 2, "spread"}: {{2, 2, "spread"}, {1, 4, "spread"}, {1, 2, "local"}, {2, 1, "local"}},
		{1, 2, "local"}:  {{1, 4, "spread"}},
	})
}
