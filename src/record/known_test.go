package record

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/profile"
	"dynmo/src/random"
	"dynmo/src/schedule"
)

// TestKnownTellsAsMuchAgain: phases are written and read. After every step a simulated run knows
// as much about costs as the run did, also once the model has changed.
func TestKnownTellsAsMuchAgain(t *testing.T) {
	const layers, microbatches, steps, change = 6, 8, 20, 12
	order, err := schedule.New(schedule.Kind1F1B, 2, 1, microbatches)
	expect.OK(t, err)
	l := layout.New(partition.Partition{0, 3, 6}, order, 1, layout.StageMajor)
	draw := random.Keyed(3, 5)
	var run, again profile.Profiler
	var log phaseLog
	var phases Series
	var want []cost.Estimate
	for step := range steps {
		m := profile.Measurement{Measurement: cost.Measurement{Table: cost.Table{Clock: "virtual"}}}
		for range layers {
			row := make([]cost.Stage, microbatches)
			for i := range row {
				x := 1e-3 * (1 + 0.1*math.Abs(draw.NormFloat64())) / float64(1+step/change)
				row[i] = cost.Stage{Forward: x, Input: 2 * x, Weight: x}
			}
			m.Layers, m.Samples = append(m.Layers, cost.Layer{}.WithSeconds(cost.Location(row))), append(m.Samples, row)
		}
		var what dynamic.Change
		if step == change {
			what = dynamic.Change{Kind: "prune", Costs: true}
			log.change = what.Kind
		}
		m = run.Observe(m, l, what)
		want = append(want, m.Estimate)
		if p, ok := log.add(step, 1, m.Measurement, m.Known(), Course{Layout: l, Makespan: 1}); ok {
			phases = append(phases, p)
		}
	}
	last, _ := log.take()
	var text strings.Builder
	for _, p := range append(phases, last) {
		expect.OK(t, json.NewEncoder(&text).Encode(p))
	}
	read, err := ReadSeries("costs", strings.NewReader(text.String()), layers)
	expect.OK(t, err)
	step := 0
	for _, p := range read {
		for _, k := range p.Known {
			got := again.Again(p.Table, k, l)
			for i := range got.Layers {
				if a, b := got.Layers[i].Seconds(), want[step].Layers[i].Seconds(); math.Abs(a/b-1) > 1e-4 || math.Abs(got.Layer[i]-want[step].Layer[i]) > 1e-3 {
					t.Errorf("step %d, layer %d: %v s ± %v, want %v ± %v", step, i, a, got.Layer[i], b, want[step].Layer[i])
				}
			}
			step++
		}
	}
	if step != steps {
		t.Errorf("%d steps are known, want %d", step, steps)
	}
	wrong := strings.Replace(text.String(), `"known":[{"layers":[[`, `"known":[{"layers":[[-`, 1)
	if _, err := ReadSeries("costs", strings.NewReader(wrong), layers); err == nil || !strings.Contains(err.Error(), "known[0].layers[0]: ") {
		t.Errorf("error %v", err)
	}
}

// TestMicrobatchesOfAStep: the table of a step says how microbatches with fewer tokens
// differ. The costs of a log are those of the mean microbatch, not of the short microbatches.
func TestMicrobatchesOfAStep(t *testing.T) {
	var m profile.Measurement
	work := []float64{0.2, 0.4, 0.6, 0.8}
	m.Layers = make([]cost.Layer, 2)
	m.Samples, m.Work = make([][]cost.Stage, 2), [][]float64{nil, work}
	for _, w := range work {
		m.Samples[0] = append(m.Samples[0], cost.Stage{Forward: 3})
		m.Samples[1] = append(m.Samples[1], cost.Stage{Forward: 10 * w})
	}
	order, err := schedule.New(schedule.Kind1F1B, 2, 1, len(work))
	expect.OK(t, err)
	l := layout.New(partition.Partition{0, 1, 2}, order, 1, layout.StageMajor)
	var p profile.Profiler
	m = p.Observe(m, l, dynamic.Change{})
	if m.Scale[0] != nil || m.Estimate.Scale[1][0] != 0.4 || m.Scale[1][3] != 1.6 {
		t.Errorf("microbatches take %v times their seconds", m.Scale)
	}
	if got := m.Estimate.Spread(1); math.Abs(got-math.Sqrt(0.2)) > 1e-9 { // of 0.4, 0.8, 1.2, 1.6
		t.Errorf("deviation %v, want %v", got, math.Sqrt(0.2))
	}
	var log phaseLog
	log.add(0, 1, m.Measurement, nil, Course{Layout: l, Makespan: 1})
	phase, _ := log.take()
	if got := phase.Layers[1].Forward; math.Abs(got-5) > 1e-9 {
		t.Errorf("the log has %v s, want 5", got)
	}
	if mean := phase.Costs().Mean(); math.Abs(mean.Layers[1].Forward-5) > 1e-9 || mean.Layers[0].Forward != 3 {
		t.Errorf("means %v and %v, want 3 and 5", mean.Layers[0].Forward, mean.Layers[1].Forward)
	}
}
