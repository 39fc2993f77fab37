package moe

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
)

// sinkhornAssigned returns the experts of each token of a microbatch by its routers' logits (n,
// experts), the best first. Scores are exp(stretched logits). Rows are scaled to the sum 1 and
// columns to equal sums, in turn, e.Rounds times (Sinkhorn & Knopp 1967; Clark et al. 2022,
// S-BASE).
func sinkhornAssigned(logits [][]float64, e Experts) (chosen [][]int) {
	n, variance, stretch := float64(len(logits)), 0.0, 1.0
	for _, row := range logits {
		mean := 0.0
		for _, z := range row {
			mean += z / float64(len(row))
		}
		for _, z := range row {
			variance += (z - mean) * (z - mean) / float64(len(row)) / n
		}
	}
	if e.Deviation > 0 {
		stretch = e.Deviation / math.Sqrt(variance)
	}
	matrix := make([][]float64, len(logits))
	for t, row := range logits {
		for _, z := range row {
			matrix[t] = append(matrix[t], math.Exp(stretch*(z-slices.Max(row))))
		}
	}
	scale := func(entry func(i int) *float64, count int, sum float64) {
		now := 0.0
		for i := range count {
			now += *entry(i)
		}
		for i := range count {
			*entry(i) *= sum / now
		}
	}
	for range e.Rounds {
		for t := range matrix {
			scale(func(k int) *float64 { return &matrix[t][k] }, e.Count, 1)
		}
		for k := range e.Count {
			scale(func(t int) *float64 { return &matrix[t][k] }, len(matrix), n/float64(e.Count))
		}
	}
	for _, row := range matrix {
		order := make([]int, len(row))
		for k := range order {
			order[k] = k
		}
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(row[b], row[a]) })
		chosen = append(chosen, order[:e.Top])
	}
	return chosen
}

// plainBalanced returns the loss of experts that are assigned in balance (S-BASE, Clark et al. 2022)
// number by number: a token's experts are found with all tokens of the microbatch, and weighted by
// the softmax of its logits. A block's are known once those of the blocks before are.
func plainBalanced(ch *modeltest.Chain) (p *modeltest.Plain, loss modeltest.Scalar, counts []int) {
	e := model.KindOf[Experts](ch.S.Config)
	assignments := make(map[string][][]int)
	var logits [][]modeltest.Scalar
	for known := range ch.S.Config.Blocks + 1 {
		seen := make(map[string][][]float64)
		p, logits = modeltest.PlainOf(ch, func(plain *modeltest.Plain) {
			plain.FeedForward = func(at string, x []modeltest.Scalar) []modeltest.Scalar {
				z := plain.Product(at+"router.weight", x)
				token := len(seen[at])
				var values []float64
				out := make([]modeltest.Scalar, len(x))
				for _, v := range z {
					values = append(values, v.X)
				}
				seen[at] = append(seen[at], values)
				for i := range out {
					out[i] = plain.Put(0, nil, nil)
				}
				if assignments[at] == nil {
					return out
				}
				all := plain.Softmax(z)
				for _, k := range assignments[at][token] {
					for i, y := range plain.Gated(fmt.Sprintf("%sexpert.%d.", at, k), x) {
						out[i] = plain.Add(out[i], plain.Mul(all[k], y))
					}
				}
				return out
			}
		})
		if at := model.InBlock(known).Layer + "/"; known < ch.S.Config.Blocks {
			assignments[at] = sinkhornAssigned(seen[at], e)
		}
	}
	counts = make([]int, e.Count)
	for _, block := range assignments {
		for _, token := range block {
			for _, k := range token {
				counts[k]++
			}
		}
	}
	return p, p.Loss(logits, ch.Targets), counts
}

// TestBalancedExpertsAreThePlainModel: over 20 steps of gradient descent loss and gradients are those
// of the model written number by number.
func TestBalancedExpertsAreThePlainModel(t *testing.T) {
	for _, e := range []Experts{{Count: 4, Top: 1, Balanced: true, Deviation: 8, Rounds: 16}, {Count: 4, Top: 2, Balanced: true, Rounds: 3}} {
		t.Run(fmt.Sprintf("top %d, deviation %v", e.Top, e.Deviation), func(t *testing.T) {
			ch := modeltest.New(t, mixture(e), tensor.F64)
			modeltest.Enlarge(ch.S)
			for step := range 20 {
				ch.Gradients()
				p, loss, counts := plainBalanced(ch)
				if got := ch.Loss(); math.Abs(got-loss.X) > 1e-10 {
					t.Fatalf("step %d: loss %v, plainly %v", step, got, loss.X)
				}
				if slices.Min(counts) == 0 {
					t.Fatalf("step %d: tokens of experts %v", step, counts)
				}
				modeltest.EqualGradients(t, ch, p, p.Derivatives(loss))
				ch.Descend(0.05)
			}
		})
	}
}
