package study

import (
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// TestMoveByHand: a move takes what the busiest rank sends or receives over its link; while
// ranks stay its bytes are those of one replica, else of all.
func TestMoveByHand(t *testing.T) {
	of := func(ranks []int, cuts ...int) layout.Layout {
		s, err := schedule.New(schedule.Kind1F1B, len(cuts)-1, 1, 1)
		expect.OK(t, err)
		l := layout.New(partition.Partition(cuts), s, 2, layout.StageMajor)
		l.Ranks = ranks
		return l
	}
	table := cost.Table{Layers: make([]cost.Layer, 6)}
	for l := range table.Layers {
		table.Layers[l].Bytes = cost.Bytes{Parameters: 10, Optimizer: 20}
	}
	o := Options{Config: config.Default(), Network: sim.Uniform(0, 10)}
	present := of(nil, 0, 2, 4, 6)
	for _, c := range []struct {
		name    string
		next    layout.Layout
		bytes   int64
		seconds float64
	}{
		{"nothing", present, 0, 0},
		{"two layers of each replica", of(nil, 0, 3, 5, 6), 60, 3},
		{"the last stage leaves", of(nil, 0, 2, 6), 120, 6},
		// Ranks 0 and 1 take layer 2, ranks 4 and 5 layer 3.
		{"the middle stage leaves", of([]int{0, 1, 4, 5}, 0, 3, 6), 120, 6},
		// Rank 4 becomes replica 1 of the first stage and takes three layers; rank 2 takes two,
		// ranks 0 and 5 one each.
		{"a rank becomes another replica", of([]int{0, 4, 2, 5}, 0, 3, 6), 210, 9},
	} {
		if bytes, seconds := o.move(table, present, c.next, 0); bytes != c.bytes || seconds != c.seconds {
			t.Errorf("%s: %d bytes in %v s, want %d in %v", c.name, bytes, seconds, c.bytes, c.seconds)
		}
	}
}
