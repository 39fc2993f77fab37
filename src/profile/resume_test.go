package profile

import (
	"testing"

	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/mesh"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// on returns a layout of two layers.
func on(stages, replicas, microbatches int) layout.Layout {
	order := schedule.Schedule{Map: partition.Line(stages), Microbatches: microbatches}
	return layout.New(partition.Partition{0, 1, 2}[:stages+1], order, replicas, mesh.StageMajor)
}

// TestStay: the layout in which a run would have stayed is its first, but where it was
// resumed on other ranks or with other microbatches.
func TestStay(t *testing.T) {
	first := on(2, 1, 4)
	for _, c := range []struct {
		name    string
		run     Run
		another bool
	}{
		{"fewer stages, packed", Run{Layout: on(1, 1, 4)}, false},
		{"resumed on as many", Run{Layout: on(2, 1, 4), Resumed: true}, false},
		{"resumed on fewer", Run{Layout: on(1, 1, 4), Resumed: true}, true},
		{"resumed on more replicas", Run{Layout: on(2, 2, 4), Resumed: true}, true},
		{"resumed with other microbatches", Run{Layout: on(2, 1, 8), Resumed: true}, true},
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
	var log Log
	var list Series
	log.Resumed()
	for step := range 2 {
		log.Changed("prune")
		log.Add(step, cost.Measurement{Table: cost.Table{Layers: make([]cost.Layer, 1)}}, Run{Layout: on(1, 1, 1)})
		p, _ := log.Take()
		list = append(list, p)
	}
	if !list[0].Run.Resumed || list[1].Run.Resumed {
		t.Errorf("resumed %v, then %v", list[0].Run.Resumed, list[1].Run.Resumed)
	}
	before, after := Phase{Run: &Run{}}, Phase{Run: &Run{}}
	half := Series{before, list[0], after, before}.Halved()
	if len(half) != 2 || half[0].Run.Resumed || !half[1].Run.Resumed || after.Run.Resumed {
		t.Errorf("%+v, %+v", half[0].Run, half[1].Run)
	}
}
