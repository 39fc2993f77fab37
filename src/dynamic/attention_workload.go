package dynamic

import (
	"math"

	"dynmo/src/cost"
)

// AttentionWorkload computes of the scores of a causal attention only those of
// equal buckets (Pagliardini et al. 2023). Their density is uniform over the
// layers and varies from step to step; attention over the scores takes so much of
// its dense time, the rest of the block all of it.
type AttentionWorkload struct {
	Sparsest, Densest float64 // mean density of a layer's scores
	Noise             float64 // deviation of its logarithm from step to step
}

// Costs change with every step.
func (w AttentionWorkload) Costs(c *Chain, step int) Costs {
	return c.change(func(l *cost.Layer, b block) {
		mean := w.Sparsest + (w.Densest-w.Sparsest)*c.random(streamDensity, uint64(b.index)).Float64()
		noise := c.random(streamBuckets, uint64(step), uint64(b.index)).NormFloat64()
		density := min(1, mean*math.Exp(w.Noise*noise))
		slower(l, 1-b.attention*(1-density))
	})
}
