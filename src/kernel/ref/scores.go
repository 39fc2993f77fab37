package ref

import (
	"math"

	"dynmo/src/kernel"
)

// SquashLogits sets the first half of router to u·weightᵀ and the second to u = tanh(inp),
// and squashed to u, rounded.
func SquashLogits[F Float](router []float64, squashed, inp, weight []F, n, experts int) {
	z, u := router[:n*experts], router[n*experts:]
	for i, a := range inp {
		u[i] = math.Tanh(float64(a))
		squashed[i] = F(u[i])
	}
	for i := range z {
		t, k := i/experts, i%experts
		z[i] = 0
		for j, w := range weight[k*experts:][:experts] {
			z[i] += float64(w) * u[t*experts+j]
		}
	}
}

// SquashGradient sets dinp = (dout·weight)·(1 - tanh²(inp)).
func SquashGradient[F Float](dinp, dout, inp, weight []F, n, experts int) {
	sums := make([]float64, experts)
	for t := range n {
		clear(sums)
		row := t * experts
		for k, dz := range dout[row:][:experts] {
			for j, w := range weight[k*experts:][:experts] {
				sums[j] += float64(w) * float64(dz)
			}
		}
		for j, sum := range sums {
			u := math.Tanh(float64(inp[row+j]))
			dinp[row+j] = F(sum * (1 - u*u))
		}
	}
}

// leastShare is the smallest sum of probabilities of an expert that is scaled up: what is
// smaller no token can reach.
const leastShare = 1e-200

// BalanceScores sets the second half of router to scores of experts, as kernel.Backend says.
// Nil logits are the first half.
func BalanceScores[F Float](router []float64, logits []F, r kernel.Routing, n, experts int) {
	scores := router[n*experts:]
	for i := range scores {
		if scores[i] = router[i]; logits != nil {
			scores[i] = float64(logits[i])
		}
	}
	sharpen(scores, r.Deviation, n, experts)
	scales := sinkhorn(scores, r.Rounds, n, experts)
	for i := range scores {
		scores[i] *= scales[i%experts]
	}
}

// sharpen sets n rows of logits to exp(deviation/σ·(logit - largest)), of each row's largest.
func sharpen(scores []float64, deviation float64, n, experts int) {
	variance := 0.0
	for t := range n {
		row := scores[t*experts:][:experts]
		largest, mean, square := math.Inf(-1), 0.0, 0.0
		for _, z := range row {
			largest = max(largest, z)
		}
		for k := range row {
			row[k] -= largest
			mean, square = mean+row[k]/float64(experts), square+row[k]*row[k]/float64(experts)
		}
		variance += (square - mean*mean) / float64(n)
	}
	stretch := 1.0
	if variance > 0 && deviation > 0 {
		stretch = deviation / math.Sqrt(variance)
	}
	for i, z := range scores {
		scores[i] = math.Exp(stretch * z)
	}
}

// sinkhorn returns scales of the columns with which scores·scales, each row scaled to the
// sum 1, has columns of nearly equal sums.
func sinkhorn(scores []float64, rounds, n, experts int) []float64 {
	scales, sums := make([]float64, experts), make([]float64, experts)
	for k := range scales {
		scales[k] = 1
	}
	for range rounds {
		clear(sums)
		for t := range n {
			scores, row := scores[t*experts:][:experts], 0.0
			for k, x := range scores {
				row += x * scales[k]
			}
			row = 1 / row // the largest score is 1
			for k, x := range scores {
				sums[k] += x * row
			}
		}
		for k, sum := range sums {
			if sum > leastShare {
				scales[k] = float64(n) / float64(experts) / sum
			}
		}
	}
	return scales
}
