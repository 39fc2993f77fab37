package mod

import "dynmo/src/dynamic"

// workload is a mixture of depths: every second block, the second, the
// fourth, …, takes a share of the tokens, more or less by step and microbatch;
// the others go by.
type workload struct {
	Tokens float64 // share of the tokens that a routed block takes
	Noise  float64 // its relative deviation, since a predictor decides and misjudges
}

// Costs change with every step.
func (w workload) Costs(c *dynamic.Chain, step int) dynamic.Costs {
	return c.Scaled(func(factors []float64, b dynamic.Block) {
		if b.Index%2 == 0 {
			return
		}
		rnd := c.Random(stream, uint64(step), uint64(b.Index))
		for m := range factors {
			factors[m] = min(1, max(0, w.Tokens*(1+w.Noise*rnd.NormFloat64())))
		}
	})
}

// stream is that of the random numbers.
const stream = 6
