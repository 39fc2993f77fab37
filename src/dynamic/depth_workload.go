package dynamic

// DepthWorkload is a mixture of depths: every second block, the second, the
// fourth, …, takes a share of the tokens, more or less by step and microbatch;
// the others go by.
type DepthWorkload struct {
	Tokens float64 // share of the tokens that a routed block takes
	Noise  float64 // its relative deviation, since a predictor decides and misjudges
}

// Costs change with every step.
func (w DepthWorkload) Costs(c *Chain, step int) Costs {
	return c.scaled(func(factors []float64, b block) {
		if b.index%2 == 0 {
			return
		}
		rnd := c.random(streamDepth, uint64(step), uint64(b.index))
		for m := range factors {
			factors[m] = min(1, max(0, w.Tokens*(1+w.Noise*rnd.NormFloat64())))
		}
	})
}
