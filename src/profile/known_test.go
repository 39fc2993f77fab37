package profile

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/mesh"
	"dynmo/src/partition"
	"dynmo/src/random"
	"dynmo/src/schedule"
)

// TestKnownTellsAsMuchAgain: phases are written and read. After every step a simulated run knows
// as much about costs as the run did, also once the model has changed.
func TestKnownTellsAsMuchAgain(t *testing.T) {
	const layers, microbatches, steps, change = 6, 8, 20, 12
	order, err := schedule.New(schedule.Kind1F1B, 2, 1, microbatches)
	expect.OK(t, err)
	l := layout.New(partition.Partition{0, 3, 6}, order, 1, mesh.StageMajor)
	draw := random.Keyed(3, 5)
	var run, again Profiler
	var log Log
	var phases Series
	var want []cost.Estimate
	for step := range steps {
		m := Measurement{Measurement: cost.Measurement{Table: cost.Table{Clock: "virtual"}}}
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
			log.Changed(what.Kind)
		}
		m = run.Observe(m, l, what)
		want = append(want, m.Estimate)
		log.Knew(m)
		if p, ok := log.Add(step, m.Measurement, Run{Layout: l, Makespan: 1}); ok {
			phases = append(phases, p)
		}
	}
	last, _ := log.Take()
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
