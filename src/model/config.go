// Package model is the transformer as a chain of layers. A stage owns some of
// them; each layer turns what enters it into what leaves it, in three separate
// steps: forward, backward for inputs, backward for weights. It takes a place
// to save activations from its caller and keeps nothing else between calls
// but weights, gradients and the optimizer's state.
//
// The chain is GPT-2's (Radford et al. 2019): embedding, blocks of pre-norm
// attention and MLP with residuals, and a head of final norm, vocabulary
// projection and cross-entropy. Each of its items is a layer: the unit that is
// measured and migrated. With half grain a block is two layers.
package model

import "fmt"

// Config is the shape of the model.
type Config struct {
	Blocks, Hidden, Heads, Sequence, Vocab int

	Tied        bool // the head projects with the embedding's weights
	HalfGrain   bool // attention and MLP of a block are layers of their own
	DepthScaled bool // initial deviations shrink with depth (Zhang et al. 2019)
	Seed        uint64
}

// Layers returns the length of the chain.
func (c Config) Layers() int {
	if c.HalfGrain {
		return 2*c.Blocks + 2
	}
	return c.Blocks + 2
}

// Names returns the name of every layer: "embedding", "block.0" or
// "block.0.attention" and "block.0.mlp", …, "head".
func (c Config) Names() []string {
	names := []string{"embedding"}
	for b := range c.Blocks {
		if c.HalfGrain {
			names = append(names, fmt.Sprintf("block.%d.attention", b), fmt.Sprintf("block.%d.mlp", b))
		} else {
			names = append(names, fmt.Sprintf("block.%d", b))
		}
	}
	return append(names, "head")
}

// Embedding and Head return the chain positions of the two ends.
func (c Config) Embedding() int { return 0 }
func (c Config) Head() int      { return c.Layers() - 1 }

// parts returns what a layer computes, first to last.
func (c Config) parts(layer int) []part {
	switch {
	case layer == c.Embedding():
		return []part{newEmbedding(c)}
	case layer == c.Head():
		return []part{newHead(c)}
	case !c.HalfGrain:
		return []part{newAttention(c, layer-1), newMLP(c, layer-1)}
	case layer%2 == 1:
		return []part{newAttention(c, (layer-1)/2)}
	}
	return []part{newMLP(c, (layer-1)/2)}
}
