package profile

import (
	"math/rand/v2"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/partition"
)

// TestPaceIsOfTheRank: a rank becomes slower, unevenly. Its pace is found, and the costs of its
// layers stay.
func TestPaceIsOfTheRank(t *testing.T) {
	const steps, slower = 200, 60
	r := rand.New(rand.NewPCG(1, 2)) // fixed seed: a failure must repeat
	owners := partition.Owners{0, 0, 0, 1, 1, 1}
	table := cost.Table{Layers: make([]cost.Layer, len(owners))}
	var e estimator
	for step := range steps {
		rank := []float64{1, 1}
		if step >= slower {
			rank[1] = 1.25 + 0.15*r.ExpFloat64() // on average 1.4
		}
		values := make([]value, len(owners))
		for l, stage := range owners {
			x := rank[stage] * (1 + 0.05*r.ExpFloat64())
			values[l] = value{cost.Stage{Forward: x, Input: x, Weight: x}, 0.03}
		}
		out := e.observe(cost.Measurement{Table: table}, values, owners, step == 0)
		for l, layer := range out.Layers {
			if x := layer.Forward; step > slower+2*patience && (x < 0.95 || x > 1.1) {
				t.Fatalf("step %d: layer %d is taken to cost %.3f, want about 1; ranks %v", step, l, x, out.Slow)
			}
		}
		if step == steps-1 && (out.Slow == nil || out.Slow[0] != 1 || out.Slow[1] < 1.25 || out.Slow[1] > 1.5) {
			t.Errorf("ranks %v, want the second 1.25 to 1.5 times slower", out.Slow)
		}
	}
}

// TestMovedLayersAlwaysCost: a layer has just left a rank that was disturbed only while the layer
// was there. The cost of the layer stays.
func TestMovedLayersAlwaysCost(t *testing.T) {
	const disturbedSteps = 2
	before, after := partition.Owners{0, 0, 1, 1}, partition.Owners{0, 0, 0, 1}
	table := cost.Table{Layers: make([]cost.Layer, len(before))}
	var e estimator
	for step := range disturbedSteps + settled {
		owners, disturbance := before, 1.4
		if step >= disturbedSteps {
			owners, disturbance = after, 1
		}
		values := make([]value, len(owners))
		for l, stage := range owners {
			x := 1.0
			if stage == 1 {
				x = disturbance
			}
			values[l] = value{cost.Stage{Forward: x, Input: x, Weight: x}, 0.03}
		}
		for l, layer := range e.observe(cost.Measurement{Table: table}, values, owners, step == 0).Layers {
			if x := layer.Forward; x < 0.99 || x > 1.41 {
				t.Errorf("step %d: layer %d is taken to cost %.3f, want 1 to 1.4", step, l, x)
			}
		}
	}
}
