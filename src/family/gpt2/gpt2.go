// Package gpt2 is the GPT-2 family (Radford et al. 2019): LayerNorm, a table of positions, an MLP
// with GELU, and biases.
package gpt2

import (
	"cmp"
	"maps"

	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/family"
	"dynmo/src/input"
	"dynmo/src/model"
)

// name is the family's name in the settings, and its Hugging Face model type.
const name = "gpt2"

// Family registers GPT-2. It has no settings of its own.
var Family = family.Registration{
	Settings: config.Family{Name: name},
	Model:    model.Family{Name: name, Chain: model.Decoder, Weights: weights, Sampled: true},
	Forms: family.Forms{
		Describes: func(c model.Config) bool { return c.FamilyName() == name },
		List:      []family.Form{form},
	},
}

var form = family.Form{
	Name: name, Prefix: "transformer.", Token: "wte.weight", Buffers: []string{".attn.bias", ".attn.masked_bias"}, LLMC: true,
	Read: read, Write: write,
}

// read returns the shape that a GPT2Config describes.
func read(o input.Object) (model.Config, error) {
	c := model.Config{Vocab: data.GPT2Tokens, Sequence: 1024, Hidden: 768, Blocks: 12, Heads: 12, Tied: true}
	if err := o.Dimensions(
		input.Dimension{Key: "vocab_size", To: &c.Vocab, Limit: family.MaxTokens}, input.Dimension{Key: "n_positions", To: &c.Sequence, Limit: family.MaxTokens},
		input.Dimension{Key: "n_embd", To: &c.Hidden, Limit: family.MaxHidden}, input.Dimension{Key: "n_layer", To: &c.Blocks, Limit: family.MaxBlocks},
		input.Dimension{Key: "n_head", To: &c.Heads, Limit: family.MaxHidden},
	); err != nil {
		return c, err
	}
	if c.Hidden%c.Heads != 0 {
		return c, o.Fail("n_head", "%d does not divide n_embd, %d", c.Heads, c.Hidden)
	}
	return c, cmp.Or(
		o.Flag("tie_word_embeddings", &c.Tied),
		o.Only("n_inner", nil, float64(4*c.Hidden)),
		o.Only("activation_function", "gelu_new", "gelu_pytorch_tanh"), // both names mean the same function
		o.Only("layer_norm_epsilon", 1e-5),
		o.Only("scale_attn_weights", true),
		o.Only("scale_attn_by_inverse_layer_idx", false),
		o.Only("add_cross_attention", false),
	)
}

func write(c model.Config, end int32) map[string]any {
	members := family.Members(name, "GPT2LMHeadModel", c, end)
	maps.Copy(members, map[string]any{
		"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
		"attn_pdrop": family.NoDropout, "embd_pdrop": family.NoDropout, "resid_pdrop": family.NoDropout,
		"n_embd": c.Hidden, "n_head": c.Heads, "n_layer": c.Blocks, "n_positions": c.Sequence,
	})
	return members
}
