package attention

import (
	"math"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
)

// workload computes of the scores of a causal attention only those of
// equal buckets (Pagliardini et al. 2023). Their density is uniform over the
// layers and varies from step to step; attention over the scores takes so much of
// its dense time, the rest of the block all of it.
type workload struct {
	Sparsest, Densest float64 // mean density of a layer's scores
	Noise             float64 // deviation of its logarithm from step to step
}

// Costs change with every step.
func (w workload) Costs(c *dynamic.Chain, step int) dynamic.Costs {
	return c.Change(func(l *cost.Layer, b dynamic.Block) {
		mean := w.Sparsest + (w.Densest-w.Sparsest)*c.Random(densityStream, uint64(b.Index)).Float64()
		noise := c.Random(bucketStream, uint64(step), uint64(b.Index)).NormFloat64()
		density := min(1, mean*math.Exp(w.Noise*noise))
		dynamic.Slower(l, 1-b.Attention*(1-density))
	})
}

// Streams of random numbers.
const densityStream, bucketStream = 3, 4
