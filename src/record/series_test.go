package record

import (
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// on returns a layout of two layers.
func on(stages, replicas, microbatches int) layout.Layout {
	order := schedule.Schedule{Map: partition.Line(stages), Microbatches: microbatches}
	return layout.New(partition.Partition{0, 1, 2}[:stages+1], order, replicas, layout.StageMajor)
}

// TestStay: the layout in which a run would have stayed is its first, but where it was
// resumed on other ranks or with other microbatches.
func TestStay(t *testing.T) {
	first := on(2, 1, 4)
	for _, c := range []struct {
		name    string
		run     Course
		another bool
	}{
		{"fewer stages, packed", Course{Layout: on(1, 1, 4)}, false},
		{"resumed on as many", Course{Layout: on(2, 1, 4), Resumed: true}, false},
		{"resumed on fewer", Course{Layout: on(1, 1, 4), Resumed: true}, true},
		{"resumed on more replicas", Course{Layout: on(2, 2, 4), Resumed: true}, true},
		{"resumed with other microbatches", Course{Layout: on(2, 1, 8), Resumed: true}, true},
	} {
		want := first
		if c.another {
			want = c.run.Layout
		}
		if got := c.run.Stay(first); !got.Equal(want) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// TestResumedPhase: the first phase since a resume says so, and of a series that was
// halved the first one behind it that is left.
func TestResumedPhase(t *testing.T) {
	var log phaseLog
	var list Series
	log.again = true
	for step := range 2 {
		log.change = "prune"
		log.add(step, 1, cost.Measurement{Table: cost.Table{Layers: make([]cost.Layer, 1)}}, nil, Course{Layout: on(1, 1, 1)})
		p, _ := log.take()
		list = append(list, p)
	}
	if !list[0].Run.Resumed || list[1].Run.Resumed {
		t.Errorf("resumed %v, then %v", list[0].Run.Resumed, list[1].Run.Resumed)
	}
	before, after := Phase{Run: &Course{}}, Phase{Run: &Course{}}
	half := Series{before, list[0], after, before}.Halved()
	if len(half) != 2 || half[0].Run.Resumed || !half[1].Run.Resumed || after.Run.Resumed {
		t.Errorf("%+v, %+v", half[0].Run, half[1].Run)
	}
}

// TestCostsOfLargerMicrobatches: costs of larger microbatches are converted to microbatches of the
// first phase's size, but not after a resume on other replicas.
func TestCostsOfLargerMicrobatches(t *testing.T) {
	ran := func(step, stages, microbatches, replicas int, seconds float64, model string) Phase {
		s, err := schedule.New(schedule.Kind1F1B, stages, 1, microbatches)
		expect.OK(t, err)
		cuts := partition.Partition{0, 1, 2}
		if stages == 1 {
			cuts = partition.Partition{0, 2}
		}
		layer := cost.Layer{Forward: seconds, BackwardInput: seconds, BackwardWeight: seconds}
		return Phase{
			Phase: cost.Phase{Step: step, Steps: 1, Model: model, Table: cost.Table{Layers: []cost.Layer{layer, layer}}},
			Run:   &Course{Layout: layout.New(cuts, s, replicas, layout.StageMajor)},
		}
	}
	series := Series{ran(0, 2, 8, 1, 1, "two"), ran(1, 1, 4, 1, 2, "four"), ran(2, 1, 4, 1, 6, "four"), ran(3, 2, 4, 2, 3, "two"), ran(4, 1, 2, 2, 8, "four")}
	series[3].Run.Resumed = true
	for name, costs := range map[string]cost.Series{"costs": series.Costs(), "even": series.Even()} {
		for i, want := range []float64{1, 1, 3, 3, 4} {
			if got := costs[i].Layers[1].Forward; got != want || costs[i].Model != "two" {
				t.Errorf("%s: phase %d: %v seconds of model %s, want %v of two", name, i, got, costs[i].Model, want)
			}
		}
	}
	if series[1].Layers[0].Forward != 2 {
		t.Error("the series itself has changed")
	}
}
