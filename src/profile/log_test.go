package profile

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/mesh"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// TestLog: steps of one layout and model are one phase with their
// medians; a change of the model, of the cuts, and its own length end it.
func TestLog(t *testing.T) {
	table := func(seconds float64) cost.Table {
		return cost.Table{Clock: "wall", Layers: []cost.Layer{{Name: "a", Forward: seconds, BackwardInput: 2 * seconds, BackwardWeight: 3 * seconds}}}
	}
	ran := func(cuts partition.Partition, makespan float64, seconds ...float64) Run {
		order := schedule.Schedule{Map: partition.Line(cuts.Stages())}
		r := Run{Layout: layout.New(cuts, order, 1, mesh.StageMajor), Makespan: makespan}
		for _, x := range seconds {
			r.Scale = append(r.Scale, []cost.Stage{{Forward: x, Input: x, Weight: x}})
		}
		return r
	}
	var log Log
	var got Series
	note := func(s Phase, ok bool) {
		if ok {
			got = append(got, s)
		}
	}
	one, two := partition.Partition{0, 1}, partition.Partition{0, 0, 1}
	note(log.Add(0, table(1), ran(one, 10, 1)))
	note(log.Add(1, table(9), ran(one, 30, 3)))
	note(log.Add(2, table(2), ran(one, 20, 12)))
	log.Changed("prune")
	note(log.Add(3, table(4), ran(one, 5)))
	note(log.Add(4, table(5), ran(two, 6)))
	note(log.Take())
	note(log.Take())
	phase := func(step, steps int, seconds float64, change string, run Run) Phase {
		return Phase{cost.Phase{Step: step, Steps: steps, Table: table(seconds), Change: change}, &run}
	}
	median := ran(one, 20)
	median.Scale = [][]cost.Stage{{{Forward: 6, Input: 3, Weight: 2}}} // 12 s of each, over 2, 4 and 6
	want := Series{
		phase(0, 3, 2, "", median), phase(3, 1, 4, "prune", ran(one, 5)), phase(4, 1, 5, "", ran(two, 6)),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got = nil
	for step := range 2*longest + 1 {
		note(log.Add(step, table(1), ran(one, 1)))
	}
	if len(got) != 2 || got[0].Steps != longest || got[1].Step != longest {
		t.Errorf("%d phases of the longest length, want 2", len(got))
	}
}
