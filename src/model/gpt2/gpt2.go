// Package gpt2 is the GPT-2 family (Radford et al. 2019): LayerNorm, a table of positions, an MLP
// with GELU, and biases.
package gpt2

import (
	"cmp"
	"maps"

	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/files"
	"dynmo/src/model"
	"dynmo/src/model/family"
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
	Name: name, Prefix: "transformer.", Token: "wte.weight", Buffers: []string{".attn.bias", ".attn.masked_bias"},
	Shape:  "vocab_size n_positions/max_position_embeddings n_embd/hidden_size n_layer/num_hidden_layers",
	Fields: fields, Read: read, Write: write,
}

// file is the source of the family's fields.
const file = "models/gpt2/configuration_gpt2.py"

// fields are those of a GPT2Config.
var fields = []family.Field{
	{Keys: "n_positions n_embd n_layer n_head n_inner max_position_embeddings hidden_size num_hidden_layers num_attention_heads", Use: family.Used, Source: file},
	{Keys: "activation_function", Use: family.Fixed, Want: []any{"gelu_new", "gelu_pytorch_tanh"}, Source: file}, // both names mean the same function
	{Keys: "layer_norm_epsilon", Use: family.Fixed, Want: []any{1e-5}, Source: file},
	{Keys: "scale_attn_weights", Use: family.Fixed, Want: []any{true}, Source: file},
	{Keys: "scale_attn_by_inverse_layer_idx", Use: family.Fixed, Want: []any{false}, Source: file},
	{Keys: "attn_pdrop embd_pdrop resid_pdrop initializer_range reorder_and_upcast_attn", Use: family.Unused, Source: file}, // training, rounding
	{Keys: "summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout summary_last_dropout", Use: family.Unused, Source: file},
	{Keys: "classifier_dropout hidden_dropout", Use: family.Unused, Source: "models/gpt2/modeling_gpt2.py"}, // other heads
	{Keys: "n_ctx predict_special_tokens", Use: family.Unused, Source: file + " before 4"},
}

// read returns the shape that a GPT2Config describes.
func read(o files.Object) (model.Config, error) {
	c := model.Config{Vocab: data.GPT2Tokens, Sequence: 1024, Hidden: 768, Blocks: 12, Heads: 12, Tied: true}
	list := []files.Dimension{
		{Key: "vocab_size", To: &c.Vocab, Limit: family.MaxTokens}, {Key: "n_positions", To: &c.Sequence, Limit: family.MaxTokens},
		{Key: "n_embd", To: &c.Hidden, Limit: family.MaxHidden}, {Key: "n_layer", To: &c.Blocks, Limit: family.MaxBlocks},
		{Key: "n_head", To: &c.Heads, Limit: family.MaxHidden},
	}
	aliases := []string{1: "max_position_embeddings", 2: "hidden_size", 3: "num_hidden_layers", 4: "num_attention_heads"} // attribute_map
	for i := 1; i < len(list); i++ {
		var err error
		if list[i].Key, err = family.Spelling(o, list[i].Key, aliases[i]); err != nil {
			return c, err
		}
	}
	if err := o.Dimensions(list...); err != nil {
		return c, err
	}
	if c.Hidden%c.Heads != 0 {
		return c, o.Fail(list[4].Key, "%d does not divide %s, %d", c.Heads, list[2].Key, c.Hidden)
	}
	return c, cmp.Or(o.Flag("tie_word_embeddings", &c.Tied), o.Only("n_inner", nil, float64(4*c.Hidden)))
}

func write(c model.Config, end int32) map[string]any {
	members := family.Members(name, "GPT2LMHeadModel", c, end)
	maps.Copy(members, map[string]any{
		"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
		"attn_pdrop": family.NoDropout, "embd_pdrop": family.NoDropout, "resid_pdrop": family.NoDropout,
		"n_embd": c.Hidden, "n_head": c.Heads, "n_layer": c.Blocks, "n_positions": c.Sequence,
		"n_ctx": c.Sequence, // llama.cpp's converter reads this one
	})
	return members
}
