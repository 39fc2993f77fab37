package profile

import (
	"math"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/mesh"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// TestMicrobatchesOfAStep: the table of a step says how microbatches with fewer tokens
// differ, and a log's costs are those of the mean microbatch, not of the short ones.
func TestMicrobatchesOfAStep(t *testing.T) {
	var m Measurement
	work := []float64{0.2, 0.4, 0.6, 0.8}
	m.Layers = make([]cost.Layer, 2)
	m.Samples, m.Work = make([][]cost.Stage, 2), [][]float64{nil, work}
	for _, w := range work {
		m.Samples[0] = append(m.Samples[0], cost.Stage{Forward: 3})
		m.Samples[1] = append(m.Samples[1], cost.Stage{Forward: 10 * w})
	}
	order, err := schedule.New(schedule.Kind1F1B, 2, 1, len(work))
	expect.OK(t, err)
	l := layout.New(partition.Partition{0, 1, 2}, order, 1, mesh.StageMajor)
	var p Profiler
	m = p.Observe(m, l, dynamic.Change{})
	if m.Scale[0] != nil || m.Estimate.Scale[1][0] != 0.4 || m.Scale[1][3] != 1.6 {
		t.Errorf("microbatches take %v times their seconds", m.Scale)
	}
	if got := m.Estimate.Spread(1); math.Abs(got-math.Sqrt(0.2)) > 1e-9 { // of 0.4, 0.8, 1.2, 1.6
		t.Errorf("deviation %v, want %v", got, math.Sqrt(0.2))
	}
	var log Log
	log.Add(0, m.Measurement, Run{Layout: l, Makespan: 1})
	phase, _ := log.Take()
	if got := phase.Layers[1].Forward; math.Abs(got-5) > 1e-9 {
		t.Errorf("the log has %v s, want 5", got)
	}
	if mean := phase.Costs().Mean(); math.Abs(mean.Layers[1].Forward-5) > 1e-9 || mean.Layers[0].Forward != 3 {
		t.Errorf("means %v and %v, want 3 and 5", mean.Layers[0].Forward, mean.Layers[1].Forward)
	}
}
