package checkpoint

import (
	"cmp"
	"encoding/json"

	"dynmo/src/model"
)

var kindGPT2 = kind{
	name: gpt2Type, prefix: "transformer.", token: "wte.weight", buffers: []string{".attn.bias", ".attn.masked_bias"},
	read: readGPT2, write: writeGPT2,
}

const gpt2Type = "gpt2"

// GPT-2's vocabulary, and the only one of its tokens that is special: it ends a text.
const (
	gpt2Vocab     = 50257
	gpt2EndOfText = 50256
)

// readGPT2 returns the shape that a GPT2Config describes.
func readGPT2(k keys) (model.Config, error) {
	c := model.Config{Vocab: gpt2Vocab, Sequence: 1024, Hidden: 768, Blocks: 12, Heads: 12, Tied: true}
	if err := k.dimensions(
		dimension{"vocab_size", &c.Vocab, maxTokens}, dimension{"n_positions", &c.Sequence, maxTokens},
		dimension{"n_embd", &c.Hidden, maxHidden}, dimension{"n_layer", &c.Blocks, maxBlocks}, dimension{"n_head", &c.Heads, maxHidden},
	); err != nil {
		return c, err
	}
	if c.Hidden%c.Heads != 0 {
		return c, k.fail("n_head", "%d does not divide n_embd, %d", c.Heads, c.Hidden)
	}
	return c, cmp.Or(
		k.flag("tie_word_embeddings", &c.Tied),
		k.only("n_inner", nil, float64(4*c.Hidden)),
		k.only("activation_function", "gelu_new", "gelu_pytorch_tanh"), // one function, two names
		k.only("layer_norm_epsilon", 1e-5),
		k.only("scale_attn_weights", true),
		k.only("scale_attn_by_inverse_layer_idx", false),
		k.only("add_cross_attention", false),
	)
}

func writeGPT2(c model.Config, end int32) any {
	return struct {
		Activation    string      `json:"activation_function"`
		Architectures []string    `json:"architectures"`
		AttnDropout   json.Number `json:"attn_pdrop"`
		Begin         *int32      `json:"bos_token_id"`
		EmbdDropout   json.Number `json:"embd_pdrop"`
		End           *int32      `json:"eos_token_id"`
		Epsilon       float64     `json:"layer_norm_epsilon"`
		ModelType     string      `json:"model_type"`
		Hidden        int         `json:"n_embd"`
		Heads         int         `json:"n_head"`
		Blocks        int         `json:"n_layer"`
		Sequence      int         `json:"n_positions"`
		ResidDropout  json.Number `json:"resid_pdrop"`
		Tied          bool        `json:"tie_word_embeddings"`
		DType         string      `json:"torch_dtype"`
		Vocab         int         `json:"vocab_size"`
	}{"gelu_new", []string{"GPT2LMHeadModel"}, noDropout, special(end), noDropout, special(end), 1e-5, gpt2Type,
		c.Hidden, c.Heads, c.Blocks, c.Sequence, noDropout, c.Tied, typeNames[F32], c.Vocab}
}
