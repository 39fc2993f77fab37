package model

import (
	"fmt"
	"math"
	"slices"
)

// gpt2 is GPT-2 (Radford et al. 2019): embedding, blocks of pre-norm attention
// and MLP with residuals, and a head of final norm, vocabulary projection and
// cross-entropy. With half grain a block is two layers; the head can be a layer
// for each of several slices of the vocabulary. A block that routes tokens is one layer
// in any case.
type gpt2 struct{}

// Chain names the layers "embedding", "block.0" or "block.0.attention" and
// "block.0.mlp", …, "head" or "head.0", "head.1", …; behind some blocks "exit.0", "exit.1", ….
func (gpt2) Chain(c Config) []Description {
	chain := []Description{{"embedding", Embedding, -1, func() []part { return []part{newEmbedding(c)} }}}
	exits := c.Exits.depths()
	for b := range c.Blocks {
		name := fmt.Sprintf("block.%d", b)
		k := slices.Index(exits, b+1)
		whole := func() []part { return []part{newAttention(c, b), newMLP(c, b)} }
		switch {
		case c.Depths.routes(b):
			chain = append(chain, Description{name, Block, b, func() []part { return []part{newRouted(c, b)} }})
		case k >= 0 && c.Exits.Confidence == saturation:
			chain = append(chain, Description{name, Block, b, func() []part { return []part{&pair{parts: whole(), hidden: c.Hidden}} }})
		case c.HalfGrain:
			chain = append(chain,
				Description{name + ".attention", Attention, b, func() []part { return []part{newAttention(c, b)} }},
				Description{name + ".mlp", MLP, b, func() []part { return []part{newMLP(c, b)} }})
		default:
			chain = append(chain, Description{name, Block, b, whole})
		}
		if k >= 0 {
			chain = append(chain, Description{fmt.Sprintf("exit.%d", k), Exit, -1, func() []part { return []part{newExit(c, k, b)} }})
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
		chain = append(chain, Description{name, Head, -1, func() []part { return []part{newHead(c, k)} }})
	}
	return chain
}

// gpt2Block lists the parameters of a block. The order is llm.c's; shapes are in
// multiples of the hidden size, with in = 0 for a vector. Hugging Face's GPT-2
// stores matrices as Conv1D does, transposed.
var gpt2Block = []struct {
	name, huggingFace string
	out, in           int64
}{
	{"norm1.weight", "ln_1.weight", 1, 0}, {"norm1.bias", "ln_1.bias", 1, 0},
	{"qkv.weight", "attn.c_attn.weight", 3, 1}, {"qkv.bias", "attn.c_attn.bias", 3, 0},
	{"proj.weight", "attn.c_proj.weight", 1, 1}, {"proj.bias", "attn.c_proj.bias", 1, 0},
	{"norm2.weight", "ln_2.weight", 1, 0}, {"norm2.bias", "ln_2.bias", 1, 0},
	{"up.weight", "mlp.c_fc.weight", 4, 1}, {"up.bias", "mlp.c_fc.bias", 4, 0},
	{"down.weight", "mlp.c_proj.weight", 1, 4}, {"down.bias", "mlp.c_proj.bias", 1, 0},
}

// Weights lists the embedding, each kind of the blocks' parameters for all blocks,
// the final norm, and last the head if it is not tied.
func (gpt2) Weights(c Config) []Weight {
	hidden := int64(c.Hidden)
	list := []Weight{
		{Name: tokenWeight, HuggingFace: "wte.weight", Shape: []int64{int64(c.Vocab), hidden}},
		{Name: "embedding/position.weight", HuggingFace: "wpe.weight", Shape: []int64{int64(c.Sequence), hidden}},
	}
	for _, k := range gpt2Block {
		for b := range c.Blocks {
			w := Weight{
				Name: fmt.Sprintf("block.%d/%s", b, k.name), HuggingFace: fmt.Sprintf("h.%d.%s", b, k.huggingFace),
				Shape: []int64{k.out * hidden}, Transposed: k.in > 0,
			}
			if k.in > 0 {
				w.Shape = append(w.Shape, k.in*hidden)
			}
			list = append(list, w)
		}
	}
	list = append(list, Weight{Name: "head/norm.weight", HuggingFace: "ln_f.weight", Shape: []int64{hidden}},
		Weight{Name: "head/norm.bias", HuggingFace: "ln_f.bias", Shape: []int64{hidden}})
	if !c.Tied {
		list = append(list, Weight{Name: "head/head.weight", HuggingFace: "lm_head.weight", Shape: []int64{int64(c.Vocab), hidden}, Outside: true})
	}
	return list
}

// initDeviation is the deviation of GPT-2's initial weights (Radford et al. 2019).
const initDeviation = 0.02

// deviation returns the deviation of a block's initial weights.
func (c Config) deviation(block int) float64 {
	if c.DepthScaled {
		return initDeviation / math.Sqrt(float64(block+1))
	}
	return initDeviation
}

// residual returns the deviation of a matrix that writes to the residual
// stream: smaller by the root of the number of such matrices (Radford et al.
// 2019).
func (c Config) residual(deviation float64) float64 {
	return deviation / math.Sqrt(float64(2*c.Blocks))
}
