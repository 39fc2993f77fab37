package study

import (
	"cmp"
	"math"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/plan/plantest"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// TestSimulateTakesLargerMicrobatches: a simulated run packs as training does, and its steps
// from then on are those of larger microbatches, whatever costs come next.
func TestSimulateTakesLargerMicrobatches(t *testing.T) {
	c := plantest.Settings(schedule.Kind1F1B, 16, 4, 32)
	c.Balance.Every, c.Repack.Kind, c.Repack.Tolerance, c.Repack.Stages, c.Repack.Microbatches = "auto", "sustain", 0.2, 2, "adapt"
	times := func(x float64) cost.Table {
		table := plantest.Chain(16, 0, 0)
		for l := range table.Layers {
			table.Layers[l] = table.Layers[l].WithSeconds(table.Layers[l].Stage().Scale(x))
		}
		return table
	}
	run := simulated(t, cost.Series{
		{Step: 0, Steps: 20, Table: times(1)}, {Step: 20, Steps: 20, Table: times(0.3), Change: "prune"}, {Step: 40, Steps: 20, Table: times(0.2), Change: "prune"},
	}, on(c, sim.Uniform(0, 0)))
	for _, s := range run.Segments {
		stages, microbatches, x := 4, 32, 1.0
		switch {
		case s.Step >= 40:
			stages, microbatches, x = 2, 8, 0.2
		case s.Step > 20:
			stages, microbatches, x = 2, 8, 0.3
		case s.Step == 20:
			x = 0.3
		}
		each := 3e-3 * x * 16 / float64(stages) * 32 / float64(microbatches)
		want := each * float64(microbatches+stages-1)
		if n := cmp.Or(s.Microbatches, 32); s.Stages() != stages || n != microbatches || math.Abs(float64(s.StepSeconds)/want-1) > 1e-9 {
			t.Errorf("step %d: %v seconds, %d microbatches on %d stages, want %v, %d on %d", s.Step, s.StepSeconds, n, s.Stages(), want, microbatches, stages)
		}
	}
	if p := run.Tally.Packing(); p == nil || p.Packings != 1 || p.RanksLast != 2 {
		t.Errorf("packing %+v, want one", p)
	}
}
