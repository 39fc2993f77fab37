// Package model is the transformer as a chain of layers. A stage owns some of
// them; each layer turns what enters it into what leaves it, in three separate
// steps: forward, backward for inputs, backward for weights. It takes a place
// to save activations from its caller and keeps nothing else between calls
// but weights, gradients and the optimizer's state.
//
// The chain is GPT-2's (Radford et al. 2019): embedding, blocks of pre-norm
// attention and MLP with residuals, and a head of final norm, vocabulary
// projection and cross-entropy. Each of its items is a layer: the unit that is
// measured and migrated. With half grain a block is two layers; the head can be
// a layer for each of several slices of the vocabulary.
package model

import (
	"fmt"

	"dynmo/src/config"
)

// Config is the shape of the model.
type Config struct {
	Blocks, Hidden, Heads, Sequence, Vocab int

	HeadShards  int  // slices of the vocabulary that the head is cut into; 0 and 1 leave it whole
	Tied        bool // the head projects with the embedding's weights
	HalfGrain   bool // attention and MLP of a block are layers of their own
	DepthScaled bool // initial deviations shrink with depth (Zhang et al. 2019)
	Seed        uint64
}

// FromConfig returns the model's shape from the settings.
func FromConfig(c config.Config) Config {
	return Config{
		Blocks: c.Model.Blocks, Hidden: c.Model.Hidden, Heads: c.Model.Heads,
		Sequence: c.Model.Sequence, Vocab: c.Model.Vocab, Tied: c.Model.Tied, HeadShards: c.Model.HeadShards,
		HalfGrain: c.Model.Grain == "half", DepthScaled: c.Model.Init == "depth-scaled", Seed: c.Run.Seed,
	}
}

// Layers returns the length of the chain.
func (c Config) Layers() int { return c.Head() + c.Slices() }

// Slices returns how many layers the head is.
func (c Config) Slices() int { return max(1, c.HeadShards) }

// Names returns the name of every layer: "embedding", "block.0" or
// "block.0.attention" and "block.0.mlp", …, "head" or "head.0", "head.1", ….
func (c Config) Names() []string {
	names := make([]string, c.Layers())
	for id := range names {
		names[id] = c.name(id)
	}
	return names
}

func (c Config) name(layer int) string {
	switch {
	case layer == c.Embedding():
		return "embedding"
	case layer >= c.Head():
		return c.headName(layer - c.Head())
	case !c.HalfGrain:
		return fmt.Sprintf("block.%d", layer-1)
	case layer%2 == 1:
		return fmt.Sprintf("block.%d.attention", (layer-1)/2)
	}
	return fmt.Sprintf("block.%d.mlp", (layer-1)/2)
}

// Embedding returns the chain position of the embedding.
func (c Config) Embedding() int { return 0 }

// Head returns the chain position of the head, the first of its slices.
func (c Config) Head() int {
	if c.HalfGrain {
		return 1 + 2*c.Blocks
	}
	return 1 + c.Blocks
}

// parts returns what a layer computes, first to last.
func (c Config) parts(layer int) []part {
	switch {
	case layer == c.Embedding():
		return []part{newEmbedding(c)}
	case layer >= c.Head():
		return []part{newHead(c, layer-c.Head())}
	case !c.HalfGrain:
		return []part{newAttention(c, layer-1), newMLP(c, layer-1)}
	case layer%2 == 1:
		return []part{newAttention(c, (layer-1)/2)}
	}
	return []part{newMLP(c, (layer-1)/2)}
}
