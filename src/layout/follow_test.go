package layout

import (
	"slices"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
	_ "dynmo/src/kind" // settings have the tables of every kind
	"dynmo/src/partition"
	"dynmo/src/piece"
	"dynmo/src/schedule"
)

// TestOptimizerCanFollow changes one condition at a time.
func TestOptimizerCanFollow(t *testing.T) {
	present := New(partition.Partition{0, 4, 10}, legal(t, schedule.Kind1F1B, 2, 1, 4), 2, StageMajor)
	moved := present.With(partition.Partition{0, 6, 10}, present.Schedule)
	ranks := moved
	ranks.Ranks = []int{0, 1, 3, 2}
	pieces := moved
	pieces.Pieces = piece.New([]piece.Map{{{0}, {1}}})
	spread := []string{"model.family=llama", "dynamic.kind=moe", "parallel.replicas=2", "parallel.experts=spread"}
	for _, c := range []struct {
		name string
		next Layout
		sets []string
		want bool
	}{
		{"layers move", moved, nil, true},
		{"fewer stages", New(partition.Partition{0, 10}, legal(t, schedule.Kind1F1B, 1, 1, 4), 2, StageMajor), nil, false},
		{"other ranks", ranks, nil, false},
		{"other pieces", pieces, nil, false},
		{"a part of the chain skips tokens", moved, []string{"dynamic.kind=mod"}, true},
		{"weights are pruned", moved, []string{"dynamic.kind=prune"}, false},
		{"layers freeze", moved, []string{"dynamic.kind=freeze", "train.steps=2000"}, false},
		{"on a GPU", moved, []string{"device.kind=cuda"}, true},
		{"replicas exchange rows in host memory", moved, spread, true},
		{"replicas exchange rows on GPUs", moved, slices.Concat(spread, []string{"device.kind=cuda"}), false},
	} {
		s, err := config.Load("", c.sets)
		expect.OK(t, err)
		if got := present.OptimizerCanFollow(c.next, s); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
