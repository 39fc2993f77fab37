package dynamic

import "math"

// ExpertWorkload is a mixture of experts, whose layer waits for its fullest one.
// With loads x_e = exp(Spread·(a_e + b_e)), a_e ~ N(0,1) of the layer, b_e of
// step and microbatch, its MLP takes max x_e / mean x_e times as long as with
// equal loads, which the dense costs stand for.
type ExpertWorkload struct {
	Experts int // of a layer
	// Spread is the deviation of the logarithm of an expert's load, once for the
	// layer and once for each of its microbatches. With 0.2 the fullest of eight experts
	// has 1.4 times the mean.
	Spread float64
}

// Costs change with every step.
func (w ExpertWorkload) Costs(c *Chain, step int) Costs {
	return c.scaled(func(factors []float64, b block) {
		habit := make([]float64, w.Experts)
		rnd := c.random(streamExperts, uint64(b.index))
		for e := range habit {
			habit[e] = rnd.NormFloat64()
		}
		rnd = c.random(streamRouting, uint64(step), uint64(b.index))
		for m := range factors {
			sum, most := 0.0, 0.0
			for e := range habit {
				x := math.Exp(w.Spread * (habit[e] + rnd.NormFloat64()))
				sum, most = sum+x, max(most, x)
			}
			factors[m] = 1 + b.mlp*(most*float64(w.Experts)/sum-1)
		}
	})
}
