package profile

import (
	"testing"

	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/random"
)

// BenchmarkObserve is what every rank does after every step to know what layers
// cost: 53 layers on 24 stages.
func BenchmarkObserve(b *testing.B) {
	const layers, stages = 53, 24
	var cuts partition.Partition
	for s := range stages + 1 {
		cuts = append(cuts, s*layers/stages)
	}
	owners := partition.Line(stages).Owners(cuts)
	draw := random.Keyed(1)
	t := cost.Table{Layers: make([]cost.Layer, layers)}
	values := make([]value, layers)
	var e estimator
	for b.Loop() {
		for l := range values {
			x := 1 + 0.1*draw.Float64()
			values[l] = value{cost.Stage{Forward: x, Input: x, Weight: x}, 0.02}
		}
		e.observe(cost.Measurement{Table: t}, values, owners, false)
	}
}
