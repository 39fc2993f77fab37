package prune

import (
	"math"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
)

// workload prunes all blocks' weights together, as pruning does in training,
// the smallest magnitudes first. Block l's weights are taken to be normal with
// deviation 1/sqrt(l+1), as a depth-scaled initialisation leaves them (Zhang et
// al. 2019), so that later blocks lose more: with threshold τ block l keeps
// erfc(τ·sqrt((l+1)/2)). Seconds of products and bytes follow what is left once a
// layer is stored as CSR; before that it is masked, and as dear as the dense one.
type workload struct {
	// prune says when and how much; Start and Every are the run's, Gather does not
	// count. From CSRFrom on the product's time is taken to be in proportion to what is
	// left: with CSR from 0.75, where its product is faster on the paper's GPU (figure
	// 6), it takes 0.4 of the dense at 0.9.
	prune pruning
}

// csrWord is the bytes of a kept float32 weight in CSR, value and column, over those of a
// dense one.
const csrWord = 2

// Costs of the last pruning hold to the end of the run.
func (w workload) Costs(c *dynamic.Chain, step int) dynamic.Costs {
	p := w.prune
	p.Start, p.Every = c.Start, c.Every
	sparsity, _ := p.Sparsity(min(step, p.Start+p.Times*p.Every))
	target := 1 - sparsity
	kept := func(threshold float64, b dynamic.Block) float64 {
		return math.Erfc(threshold * math.Sqrt(float64(b.Index+1)/2))
	}
	mean := func(threshold float64) float64 {
		sum, all := 0.0, 0.0
		for i, b := range c.Blocks {
			if b.Index >= 0 {
				n := float64(max(1, c.Layers[i].NonZeros))
				sum, all = sum+n*kept(threshold, b), all+n
			}
		}
		return sum / all
	}
	low, high := 0.0, 10.0 // block 0 keeps everything, and nothing
	for range 60 {         // halvings down to the last bit
		if middle := (low + high) / 2; mean(middle) > target {
			low = middle
		} else {
			high = middle
		}
	}
	return c.Change(func(l *cost.Layer, b dynamic.Block) {
		k := 1.0
		if target < 1 {
			k = kept(high, b)
		}
		dynamic.Share(&l.NonZeros, k)
		if k > 1-p.CSRFrom || p.CSRFrom >= 1 {
			return
		}
		dynamic.Slower(l, b.Attention+(1-b.Attention)*k/(1-p.CSRFrom))
		dynamic.Share(&l.Bytes.Parameters, csrWord*k)
		dynamic.Share(&l.Bytes.Gradients, k)
		dynamic.Share(&l.Bytes.Optimizer, k)
	})
}
