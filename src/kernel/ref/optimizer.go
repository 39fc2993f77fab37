package ref

import (
	"math"

	"dynmo/src/kernel"
)

// adamW updates the weights w and their moments m and v from the gradient g, as kernel.AdamW says.
// All have the same length. Source: Loshchilov & Hutter 2019, Algorithm 2, with the decay scaled by
// LR as PyTorch does. Each element is updated in float64.
func adamW[F Float](w, m, v, g []F, a kernel.AdamW) {
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

// sumSquares sets out[b] to Σ x² over block b, added in float64 in order.
func sumSquares[F Float](out []float64, x []F) {
	for b := range out {
		first := b * kernel.SquareBlock
		out[b] = 0
		for _, xi := range x[first:min(first+kernel.SquareBlock, len(x))] {
			out[b] += float64(xi) * float64(xi)
		}
	}
}
