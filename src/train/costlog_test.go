package train

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// TestCostLog: steps of one layout and model are one stretch with their
// medians; a change of the model, of the cuts, and its own length end it.
func TestCostLog(t *testing.T) {
	table := func(seconds float64) cost.Table {
		return cost.Table{Clock: "wall", Layers: []cost.Layer{{Name: "a", Forward: seconds, BackwardInput: 2 * seconds, BackwardWeight: 3 * seconds}}}
	}
	ran := func(cuts partition.Partition, makespan float64, seconds ...float64) cost.Run {
		r := cost.Run{Cuts: cuts, Schedule: "1f1b", Stages: 1, Microbatches: 1, Makespan: makespan}
		for _, x := range seconds {
			r.Scale = append(r.Scale, []cost.Stage{{Forward: x, Input: x, Weight: x}})
		}
		return r
	}
	order := func(cuts partition.Partition) schedule.Schedule {
		return schedule.Schedule{Map: partition.Line(cuts.Stages())}
	}
	var log costLog
	var got cost.Series
	note := func(s cost.Phase, ok bool) {
		if ok {
			got = append(got, s)
		}
	}
	one, two := partition.Partition{0, 1}, partition.Partition{0, 0, 1}
	note(log.add(0, table(1), order(one), ran(one, 10, 1)))
	note(log.add(1, table(9), order(one), ran(one, 30, 3)))
	note(log.add(2, table(2), order(one), ran(one, 20, 12)))
	log.changed("prune")
	note(log.add(3, table(4), order(one), ran(one, 5)))
	note(log.add(4, table(5), order(two), ran(two, 6)))
	note(log.take())
	note(log.take())
	stretch := func(step, steps int, seconds float64, change string, run cost.Run) cost.Phase {
		return cost.Phase{Step: step, Steps: steps, Table: table(seconds), Change: change, Run: &run}
	}
	median := ran(one, 20)
	median.Scale = [][]cost.Stage{{{Forward: 6, Input: 3, Weight: 2}}} // 12 s of each, over 2, 4 and 6
	want := cost.Series{
		stretch(0, 3, 2, "", median), stretch(3, 1, 4, "prune", ran(one, 5)), stretch(4, 1, 5, "", ran(two, 6)),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got = nil
	for step := range 2*longest + 1 {
		note(log.add(step, table(1), order(one), ran(one, 1)))
	}
	if len(got) != 2 || got[0].Steps != longest || got[1].Step != longest {
		t.Errorf("%d stretches of the longest length, want 2", len(got))
	}
}
