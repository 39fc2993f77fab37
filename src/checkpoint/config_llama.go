package checkpoint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/kind/moe"
	"dynmo/src/model"
)

// familyLlama is the model family of these and of LLaMA-MoE.
const familyLlama = "llama"

const (
	llamaType   = "llama"
	mixtralType = "mixtral"
)

var (
	kindLlama = kind{
		name: llamaType, prefix: "model.", token: "embed_tokens.weight", buffers: []string{".rotary_emb.inv_freq"}, read: readLlama, write: writeLlama,
	}
	kindMixtral = kind{
		name: mixtralType, prefix: "model.", token: "embed_tokens.weight", buffers: []string{".rotary_emb.inv_freq"}, read: readMixtral, write: writeLlama,
		refuses: refusesMixtral,
	}
)

// readLlama returns the shape that a LlamaConfig describes.
func readLlama(k keys) (model.Config, error) {
	c := model.Config{
		Family: familyLlama, Vocab: 32000, Sequence: 2048, Hidden: 4096, Blocks: 32, Heads: 32,
		Intermediate: 11008, NormEps: 1e-6, Rope: model.Rope{Base: 10000},
	}
	return c, cmp.Or(k.llama(&c), k.only("attention_bias", false), k.only("mlp_bias", false))
}

// readMixtral returns the shape that a MixtralConfig describes.
func readMixtral(k keys) (model.Config, error) {
	c := model.Config{
		Family: familyLlama, Vocab: 32000, Sequence: 4096 * 32, Hidden: 4096, Blocks: 32, Heads: 32, KeyValueHeads: 8,
		Intermediate: 14336, NormEps: 1e-5, Rope: model.Rope{Base: 1e6},
	}.With(moe.Experts{Count: 8, Top: 2})
	return c, cmp.Or(k.llama(&c), k.only("sliding_window", nil), k.experts(&c, "num_local_experts", "num_experts_per_tok"))
}

// refusesMixtral says what of a model it cannot describe.
func refusesMixtral(c model.Config) error {
	switch e := model.KindOf[moe.Experts](c); {
	case e.Scale != 0 && e.Scale != 1:
		return fmt.Errorf("moe.scale is %v, %s has 1", e.Scale, mixtralType)
	case e.Squashed:
		return fmt.Errorf("moe.router is mlp, %s has linear", mixtralType)
	}
	return nil
}

// llama sets what both configurations have.
func (k keys) llama(c *model.Config) error {
	err := k.dimensions(
		dimension{"vocab_size", &c.Vocab, maxTokens}, dimension{"max_position_embeddings", &c.Sequence, maxTokens},
		dimension{"hidden_size", &c.Hidden, maxHidden}, dimension{"intermediate_size", &c.Intermediate, maxHidden},
		dimension{"num_hidden_layers", &c.Blocks, maxBlocks}, dimension{"num_attention_heads", &c.Heads, maxHidden})
	if err != nil {
		return err
	}
	if c.Hidden%c.Heads != 0 {
		return k.fail("num_attention_heads", "%d does not divide hidden_size, %d", c.Heads, c.Hidden)
	}
	if size := c.Hidden / c.Heads; size%2 != 0 {
		return k.fail("num_attention_heads", "%d heads of %d channels: want an even number, whose halves are rotated", c.Heads, size)
	}
	if err := k.keyed(c); err != nil {
		return err
	}
	if c.Heads%c.KeyValueHeads != 0 {
		return k.fail("num_key_value_heads", "%d does not divide num_attention_heads, %d", c.KeyValueHeads, c.Heads)
	}
	return cmp.Or(
		k.number("rms_norm_eps", &c.NormEps, 1e-30, 1),
		k.flag("tie_word_embeddings", &c.Tied),
		k.only("head_dim", nil, float64(c.Hidden/c.Heads)),
		k.only("hidden_act", "silu", "swish"), // one function, two names
		k.only("partial_rotary_factor", 1.0),
		k.only("quantization_config", nil),
		k.rope(&c.Rope),
	)
}

// keyed sets the heads that have keys: all where the configuration says null.
func (k keys) keyed(c *model.Config) error {
	const key = "num_key_value_heads"
	switch _, ok := k[key]; {
	case ok && k.absent(key), !ok && c.KeyValueHeads == 0:
		c.KeyValueHeads = c.Heads
		return nil
	default:
		return k.dimensions(dimension{key, &c.KeyValueHeads, maxHidden})
	}
}

// rope sets rotary positions: of rope_theta and rope_scaling, or, from Transformers 5 on,
// of rope_parameters.
func (k keys) rope(r *model.Rope) error {
	if err := k.number("rope_theta", &r.Base, 1, 1e12); err != nil {
		return err
	}
	at := "rope_scaling"
	if !k.absent("rope_parameters") {
		at = "rope_parameters"
	}
	if k.absent(at) {
		return nil
	}
	in, err := members(k[at])
	if err == nil {
		err = in.scaling(r)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}

// variants are the rotary positions that there are.
var variants = []string{"default", model.RopeLinear, model.RopeLlama3}

// scaling sets the variant, and the members that it needs.
func (k keys) scaling(r *model.Rope) error {
	key := "rope_type"
	if k.absent(key) && !k.absent("type") {
		key = "type" // until Transformers 4.43
	}
	name := variants[0]
	if k.absent(key) {
		// Nothing says how to read members that are of a variant, or of a type of layers.
		for _, member := range slices.Sorted(maps.Keys(k)) {
			if !slices.Contains([]string{key, "type", "rope_theta", "partial_rotary_factor"}, member) {
				return k.fail(member, "stands without rope_type, want that, one of %s", strings.Join(variants, ", "))
			}
		}
	} else {
		var err error
		if name, err = k[key].text(); err != nil || !slices.Contains(variants, name) {
			return k.fail(key, "%.100s is not supported, want one of %s", k[key].json, strings.Join(variants, ", "))
		}
	}
	err := cmp.Or(k.number("rope_theta", &r.Base, 1, 1e12), k.only("partial_rotary_factor", 1.0))
	if err != nil || name == variants[0] {
		return err
	}
	r.Scaling = name
	if err := k.required("factor", &r.Factor, 1, 1e6); err != nil || name == model.RopeLinear {
		return err
	}
	const original = "original_max_position_embeddings"
	if err := cmp.Or(k.required("low_freq_factor", &r.Low, 1e-6, 1e6), k.required("high_freq_factor", &r.High, 1e-6, 1e6),
		k.there(original), k.dimensions(dimension{original, &r.Original, maxTokens})); err != nil {
		return err
	}
	if r.High <= r.Low {
		return k.fail("high_freq_factor", "%g: want more than low_freq_factor, %g", r.High, r.Low)
	}
	return nil
}

// required sets a number that must be there.
func (k keys) required(key string, to *float64, least, most float64) error {
	return cmp.Or(k.there(key), k.number(key, to, least, most))
}

// there returns an error unless a key is.
func (k keys) there(key string) error {
	if _, ok := k[key]; !ok {
		return fmt.Errorf("%s is missing", key)
	}
	return nil
}

// fraction returns a number as Python writes one that is no integer: what reads the file
// may tell 1 from 1.0.
func fraction(x float64) json.Number {
	text := strconv.FormatFloat(x, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return json.Number(text)
}

// ropeJSON is rope_scaling.
type ropeJSON struct {
	Factor   json.Number `json:"factor"`
	High     json.Number `json:"high_freq_factor,omitempty"`
	Low      json.Number `json:"low_freq_factor,omitempty"`
	Original int         `json:"original_max_position_embeddings,omitempty"`
	Type     string      `json:"rope_type,omitempty"`
	OldType  string      `json:"type,omitempty"`
}

// scalingJSON returns rope_scaling; nil where there is none.
func scalingJSON(r model.Rope) *ropeJSON {
	if r.Scaling == "" {
		return nil
	}
	scaling := &ropeJSON{Factor: fraction(r.Factor), Type: r.Scaling}
	if r.Scaling == model.RopeLlama3 {
		scaling.High, scaling.Low, scaling.Original = fraction(r.High), fraction(r.Low), r.Original
	}
	return scaling
}

func writeLlama(c model.Config, end int32) any {
	name, architecture := llamaType, "LlamaForCausalLM"
	e := model.KindOf[moe.Experts](c)
	if e.Count > 0 {
		name, architecture = mixtralType, "MixtralForCausalLM"
	}
	return struct {
		Architectures []string    `json:"architectures"`
		Dropout       json.Number `json:"attention_dropout"`
		Begin         *int32      `json:"bos_token_id"`
		End           *int32      `json:"eos_token_id"`
		Activation    string      `json:"hidden_act"`
		Hidden        int         `json:"hidden_size"`
		Intermediate  int         `json:"intermediate_size"`
		Sequence      int         `json:"max_position_embeddings"`
		ModelType     string      `json:"model_type"`
		Heads         int         `json:"num_attention_heads"`
		Top           int         `json:"num_experts_per_tok,omitempty"`
		Blocks        int         `json:"num_hidden_layers"`
		KeyValueHeads int         `json:"num_key_value_heads"`
		Experts       int         `json:"num_local_experts,omitempty"`
		Epsilon       json.Number `json:"rms_norm_eps"`
		Scaling       *ropeJSON   `json:"rope_scaling"`
		Theta         json.Number `json:"rope_theta"`
		Tied          bool        `json:"tie_word_embeddings"`
		DType         string      `json:"torch_dtype"`
		Vocab         int         `json:"vocab_size"`
	}{[]string{architecture}, noDropout, special(end), special(end), "silu", c.Hidden, c.Intermediate, c.Sequence, name, c.Heads, e.Top,
		c.Blocks, c.KeyValueHeads, e.Count, fraction(c.NormEps), scalingJSON(c.Rope), fraction(c.Rope.Base), c.Tied, typeNames[F32], c.Vocab}
}
