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

// TestSums: eight replicas of 800 bytes of gradients on one of two stages, four on a node. Of
// the 700 bytes that a replica sends to add gradients 400 go to the other node, and in groups
// of four 100.
func TestSums(t *testing.T) {
	plan, err := schedule.New(schedule.Kind1F1B, 2, 1, 4)
	expect.OK(t, err)
	layers := []cost.Layer{{Bytes: cost.Bytes{Gradients: 800}}, {Bytes: cost.Bytes{Gradients: 80}}}
	layers[0].BackwardWeight, layers[1].BackwardWeight = 1, 1
	l := layout.New(partition.Partition{0, 1, 2}, plan, 8, layout.StageMajor)
	for _, tc := range []struct {
		sum   string
		group int
		nodes int // ranks on each
		want  SumTraffic
	}{
		{"float32", 1, 0, SumTraffic{Add: 700, Back: 700}},
		{"float32", 1, 4, SumTraffic{Add: 700, Back: 700, AddBetween: 400, BackBetween: 400}},
		{"bfloat16", 1, 4, SumTraffic{Add: 350, Back: 700, AddBetween: 200, BackBetween: 400}},
		{"float32", 4, 4, SumTraffic{Add: 700, Back: 700, AddBetween: 100, BackBetween: 400}},
		{"bfloat16", 4, 4, SumTraffic{Add: 400, Back: 700, AddBetween: 100, BackBetween: 400}},
	} {
		o := Options{Config: config.Default(), Network: sim.Network{PerNode: tc.nodes}}
		o.Config.Comm.Sum, o.Config.Comm.SumGroup = tc.sum, tc.group
		tc.want.Sum, tc.want.Group = tc.sum, tc.group
		if got := Sums(cost.Table{Layers: layers}, l, o); *got != tc.want {
			t.Errorf("got %+v, want %+v", *got, tc.want)
		}
	}
	if got := Sums(cost.Table{Layers: layers}, layout.New(l.Cuts, plan, 1, layout.StageMajor), Options{Config: config.Default()}); got != nil {
		t.Errorf("one replica sends %+v", *got)
	}
}
