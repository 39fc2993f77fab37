package model

import (
	"fmt"
	"math"
)

// describe returns the chain of either family before kinds of dynamism extend it: embedding,
// blocks of pre-norm attention and MLP with residuals, and a head of final norm, vocabulary
// projection and cross-entropy. The head can be a layer for each of several slices of the
// vocabulary. Names are "embedding", "block.0" or "block.0.attention" and "block.0.mlp",
// "head" or "head.0", "head.1", ….
func describe(c Config) []Description {
	layer := func(name string, kind Kind, block int, makers ...Maker) Description {
		return Description{Name: name, Kind: kind, Block: block, Makers: makers}
	}
	chain := []Description{layer("embedding", Embedding, -1, Maker{New: func() Part { return newEmbedding(c) }})}
	for b := range c.Blocks {
		chain = append(chain, layer(fmt.Sprintf("block.%d", b), Block, b,
			Maker{Name: "attention", Kind: Attention, New: func() Part { return NewAttention(c, b, nil) }},
			Maker{Name: "mlp", Kind: MLP, New: func() Part { return newFeedForward(c, b) }}))
	}
	for k := range c.Slices() {
		name := "head"
		if c.Slices() > 1 {
			name = fmt.Sprintf("head.%d", k)
		}
		chain = append(chain, layer(name, Head, -1, Maker{New: func() Part { return newHead(c, k) }}))
	}
	return chain
}

// initDeviation is the deviation of initial weights (Radford et al. 2019; Touvron et al. 2023 have the same).
const InitDeviation = 0.02

// Deviation returns the deviation of a block's initial weights.
func (c Config) Deviation(block int) float64 {
	if c.DepthScaled {
		return InitDeviation / math.Sqrt(float64(block+1))
	}
	return InitDeviation
}

// Residual returns the deviation of a matrix that writes to the residual
// stream: smaller by the root of the number of such matrices (Radford et al.
// 2019).
func (c Config) Residual(deviation float64) float64 {
	return deviation / math.Sqrt(float64(2*c.Blocks))
}
