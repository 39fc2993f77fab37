package search

import (
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/plan/plantest"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// TestBoundOfUnequalMicrobatches: the bound of the mean microbatch can be beaten. A light
// microbatch beats it that goes first. So does a step that has the light rows of its factors once
// more than the others. A plan's bound holds in both cases.
func TestBoundOfUnequalMicrobatches(t *testing.T) {
	for name, row := range map[string][]float64{"light first": {0.5, 0.5, 0.5, 2.5}, "begins anew": {0.5, 0.5, 2}} {
		c := plantest.Settings(schedule.KindGPipe, 15, 4, 4)
		p := planner(t, c, sim.Network{})
		costs := cost.Phase{Table: plantest.Chain(15, 0, 0)}
		for l := range costs.Layers {
			costs.Scale = append(costs.Scale, row)
			costs.Layers[l].BackwardInput, costs.Layers[l].BackwardWeight = 0, 0
		}
		cuts := partition.Partition{0, 1, 2, 3, 15}
		a, err := simulateCuts(p, costs, cuts)
		expect.OK(t, err)
		took, mean := a.Step.Makespan(), sim.LowerBound(a.Map(), a.Costs, p.Microbatches, a.Caps)
		if took >= mean || took < a.LowerBound*(1-1e-12) || a.LowerBound < 0.95*took {
			t.Errorf("%s: makespan %v, bound %v, bound of the mean microbatch %v", name, took, a.LowerBound, mean)
		}
	}
}
