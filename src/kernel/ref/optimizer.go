package ref

import (
	"math"

	"dynmo/src/kernel"
)

// AdamW updates the weights w and their moments m and v from the gradient g,
// all of the same length, as kernel.AdamW says (Loshchilov & Hutter 2019,
// Algorithm 2, with the decay scaled by LR as PyTorch does). Each element is
// updated in float64.
func AdamW[F Float](w, m, v, g []F, a kernel.AdamW) {
	mCorrection := 1 - math.Pow(a.Beta1, float64(a.Step))
	vCorrection := 1 - math.Pow(a.Beta2, float64(a.Step))
	for i := range w {
		gi := float64(g[i]) * a.GradScale
		mi := a.Beta1*float64(m[i]) + (1-a.Beta1)*gi
		vi := a.Beta2*float64(v[i]) + (1-a.Beta2)*gi*gi
		update := mi / mCorrection / (math.Sqrt(vi/vCorrection) + a.Eps)
		if i < a.Decayed {
			update += a.Decay * float64(w[i])
		}
		w[i], m[i], v[i] = F(float64(w[i])-a.LR*update), F(mi), F(vi)
	}
}

// sumBlock is the elements that SumSquares adds before it adds to the total.
// It is part of the result's definition: every layout of a layer sums alike.
const sumBlock = 4096

// sumSquares returns Σ x², added in float64: in order within blocks of 4096
// elements, then the blocks in order.
func sumSquares[F Float](x []F) float64 {
	var total float64
	for len(x) > 0 {
		n := min(len(x), sumBlock)
		var sum float64
		for _, xi := range x[:n] {
			sum += float64(xi) * float64(xi)
		}
		total += sum
		x = x[n:]
	}
	return total
}
