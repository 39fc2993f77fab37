package profile

import (
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/mesh"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// TestCostsOfLargerMicrobatches: costs of phases with larger microbatches are those of the
// ones that the run began with; behind a resume on other replicas they are as they are.
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
			Run:   &Run{Layout: layout.New(cuts, s, replicas, mesh.StageMajor)},
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
