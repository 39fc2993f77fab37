package model

import (
	"fmt"
	"math"
	"slices"
)

// describe returns the chain of either family: embedding, blocks of pre-norm attention and
// MLP with residuals, and a head of final norm, vocabulary projection and cross-entropy.
// With half grain a block is two layers, with groups of experts attention and a layer for
// each group; the head can be a layer for each of several slices
// of the vocabulary. A block that routes tokens is one layer in any case. Names are
// "embedding", "block.0" or "block.0.attention" and "block.0.mlp" or "block.0.experts.0",
// "block.0.experts.1", …, "head" or "head.0",
// "head.1", …; behind some blocks "exit.0", "exit.1", ….
func describe(c Config) []Description {
	chain := []Description{{Name: "embedding", Kind: Embedding, Block: -1, parts: func() []Part { return []Part{newEmbedding(c)} }}}
	exits := c.Exits.Depths()
	for b := range c.Blocks {
		name := fmt.Sprintf("block.%d", b)
		k := slices.Index(exits, b+1)
		whole := func() []Part { return c.BlockParts(b) }
		switch {
		case c.Depths.routes(b):
			chain = append(chain, Description{Name: name, Kind: Block, Block: b, Form: Routed, parts: func() []Part { return []Part{newRouted(c, b)} }})
		case k >= 0 && c.Exits.Confidence == saturation:
			chain = append(chain, Description{Name: name, Kind: Block, Block: b, Form: "pair", parts: func() []Part { return []Part{&pair{parts: whole(), hidden: c.Hidden}} }})
		case c.Experts.Groups > 0:
			chain = append(chain, c.groupedBlock(name, b)...)
		case c.HalfGrain:
			chain = append(chain,
				Description{Name: name + ".attention", Kind: Attention, Block: b, parts: func() []Part { return []Part{newAttention(c, b)} }},
				Description{Name: name + ".mlp", Kind: MLP, Block: b, parts: func() []Part { return []Part{newFeedForward(c, b)} }})
		default:
			chain = append(chain, Description{Name: name, Kind: Block, Block: b, parts: whole})
		}
		if k >= 0 {
			chain = append(chain, Description{Name: fmt.Sprintf("exit.%d", k), Kind: Exit, Block: -1, parts: func() []Part { return []Part{newExit(c, k, b)} }})
		}
	}
	if last := len(chain) - 1; c.Exits.Propagate {
		chain[last] = chain[last].Selecting(live)
	}
	for k := range c.Slices() {
		name := "head"
		if c.Slices() > 1 {
			name = fmt.Sprintf("head.%d", k)
		}
		chain = append(chain, Description{Name: name, Kind: Head, Block: -1, parts: func() []Part { return []Part{newHead(c, k)} }})
	}
	return chain
}

// BlockParts returns the parts of a whole block.
func (c Config) BlockParts(block int) []Part {
	return []Part{newAttention(c, block), newFeedForward(c, block)}
}

// newFeedForward returns the second half of a block.
func newFeedForward(c Config, block int) Part {
	switch {
	case c.Experts.Count > 0:
		return newExperts(c, block)
	case c.Intermediate > 0:
		return newGated(c, block)
	}
	return newMLP(c, block)
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
