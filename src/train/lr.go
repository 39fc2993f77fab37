package train

import (
	"math"

	"dynmo/src/config"
)

// learningRate returns the learning rate of a step: linear from 0 to LR over
// the warm-up, then half a cosine down to MinLR at the last step (Loshchilov &
// Hutter 2017).
func learningRate(o config.Optimizer, step, steps int) float64 {
	if step < o.Warmup {
		return o.LR * float64(step+1) / float64(o.Warmup)
	}
	progress := float64(step-o.Warmup) / float64(max(1, steps-1-o.Warmup))
	return o.MinLR + (o.LR-o.MinLR)*(1+math.Cos(math.Pi*min(1, progress)))/2
}
