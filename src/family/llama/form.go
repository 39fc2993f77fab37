package llama

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"dynmo/src/family"
	"dynmo/src/input"
	"dynmo/src/model"
)

var form = FormOf(family.Form{Name: Name, Read: read, Write: func(c model.Config, end int32) map[string]any {
	return Write(Name, "LlamaForCausalLM", c, end)
}})

// FormOf adds to a model type the names that all types of the family share.
func FormOf(f family.Form) family.Form {
	f.Prefix, f.Token, f.Buffers = "model.", "embed_tokens.weight", []string{".rotary_emb.inv_freq"}
	return f
}

// read returns the shape that a LlamaConfig describes.
func read(o input.Object) (model.Config, error) {
	c := model.Config{
		Family: Name, Vocab: 32000, Sequence: 2048, Hidden: 4096, Blocks: 32, Heads: 32,
		Intermediate: 11008, NormEps: 1e-6, Rope: model.Rope{Base: 10000},
	}
	return c, cmp.Or(Read(o, &c), o.Only("attention_bias", false), o.Only("mlp_bias", false))
}

// Read reads the members that the configurations of all types of the family have.
func Read(o input.Object, c *model.Config) error {
	err := o.Dimensions(
		input.Dimension{Key: "vocab_size", To: &c.Vocab, Limit: family.MaxTokens}, input.Dimension{Key: "max_position_embeddings", To: &c.Sequence, Limit: family.MaxTokens},
		input.Dimension{Key: "hidden_size", To: &c.Hidden, Limit: family.MaxHidden}, input.Dimension{Key: "intermediate_size", To: &c.Intermediate, Limit: family.MaxHidden},
		input.Dimension{Key: "num_hidden_layers", To: &c.Blocks, Limit: family.MaxBlocks}, input.Dimension{Key: "num_attention_heads", To: &c.Heads, Limit: family.MaxHidden})
	if err != nil {
		return err
	}
	if c.Hidden%c.Heads != 0 {
		return o.Fail("num_attention_heads", "%d does not divide hidden_size, %d", c.Heads, c.Hidden)
	}
	if size := c.Hidden / c.Heads; size%2 != 0 {
		return o.Fail("num_attention_heads", "%d heads of %d channels: want an even number, whose halves are rotated", c.Heads, size)
	}
	if err := readKeyed(o, c); err != nil {
		return err
	}
	if c.Heads%c.KeyValueHeads != 0 {
		return o.Fail("num_key_value_heads", "%d does not divide num_attention_heads, %d", c.KeyValueHeads, c.Heads)
	}
	return cmp.Or(
		o.Number("rms_norm_eps", &c.NormEps, 1e-30, 1),
		o.Flag("tie_word_embeddings", &c.Tied),
		o.Only("head_dim", nil, float64(c.Hidden/c.Heads)),
		o.Only("hidden_act", "silu", "swish"), // both names mean the same function
		o.Only("partial_rotary_factor", 1.0),
		o.Only("quantization_config", nil),
		readRope(o, &c.Rope),
	)
}

// readKeyed reads the number of heads with keys; null means all heads.
func readKeyed(o input.Object, c *model.Config) error {
	const key = "num_key_value_heads"
	switch _, ok := o[key]; {
	case ok && o.Absent(key), !ok && c.KeyValueHeads == 0:
		c.KeyValueHeads = c.Heads
		return nil
	default:
		return o.Dimensions(input.Dimension{Key: key, To: &c.KeyValueHeads, Limit: family.MaxHidden})
	}
}

// readRope reads rotary positions from rope_theta and rope_scaling. Since Transformers 5 they are
// in rope_parameters.
func readRope(o input.Object, r *model.Rope) error {
	if err := o.Number("rope_theta", &r.Base, 1, 1e12); err != nil {
		return err
	}
	at := "rope_scaling"
	if !o.Absent("rope_parameters") {
		at = "rope_parameters"
	}
	if o.Absent(at) {
		return nil
	}
	in, err := o[at].Object()
	if err == nil {
		err = readScaling(in, r)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}

// variants are the known kinds of rotary positions.
var variants = []string{"default", model.RopeLinear, model.RopeLlama3}

// readScaling reads the variant and its members.
func readScaling(o input.Object, r *model.Rope) error {
	key := "rope_type"
	if o.Absent(key) && !o.Absent("type") {
		key = "type" // until Transformers 4.43
	}
	name := variants[0]
	if o.Absent(key) {
		// Members of a variant, or of a type of layers, cannot be read without rope_type.
		for _, member := range slices.Sorted(maps.Keys(o)) {
			if !slices.Contains([]string{key, "type", "rope_theta", "partial_rotary_factor"}, member) {
				return o.Fail(member, "stands without rope_type, want that, one of %s", strings.Join(variants, ", "))
			}
		}
	} else {
		var err error
		if name, err = o[key].Text(); err != nil || !slices.Contains(variants, name) {
			return o.Fail(key, "%.100s is not supported, want one of %s", o[key].JSON, strings.Join(variants, ", "))
		}
	}
	err := cmp.Or(o.Number("rope_theta", &r.Base, 1, 1e12), o.Only("partial_rotary_factor", 1.0))
	if err != nil || name == variants[0] {
		return err
	}
	r.Scaling = name
	if err := o.Required("factor", &r.Factor, 1, 1e6); err != nil || name == model.RopeLinear {
		return err
	}
	const original = "original_max_position_embeddings"
	if err := cmp.Or(o.Required("low_freq_factor", &r.Low, 1e-6, 1e6), o.Required("high_freq_factor", &r.High, 1e-6, 1e6),
		o.There(original), o.Dimensions(input.Dimension{Key: original, To: &r.Original, Limit: family.MaxTokens})); err != nil {
		return err
	}
	if r.High <= r.Low {
		return o.Fail("high_freq_factor", "%g: want more than low_freq_factor, %g", r.High, r.Low)
	}
	return nil
}

// Write returns the members of a configuration that all types of the family have.
func Write(name, architecture string, c model.Config, end int32) map[string]any {
	members := family.Members(name, architecture, c, end)
	maps.Copy(members, map[string]any{
		"attention_dropout": family.NoDropout, "hidden_act": "silu",
		"hidden_size": c.Hidden, "intermediate_size": c.Intermediate, "max_position_embeddings": c.Sequence,
		"num_attention_heads": c.Heads, "num_hidden_layers": c.Blocks, "num_key_value_heads": c.KeyValueHeads,
		"rms_norm_eps": family.Fraction(c.NormEps), "rope_theta": family.Fraction(c.Rope.Base), "rope_scaling": Scaling(c.Rope),
	})
	return members
}

// Scaling returns rope_scaling; nil without scaling.
func Scaling(r model.Rope) map[string]any {
	if r.Scaling == "" {
		return nil
	}
	scaling := map[string]any{"rope_type": r.Scaling, "factor": family.Fraction(r.Factor)}
	if r.Scaling == model.RopeLlama3 {
		scaling["high_freq_factor"], scaling["low_freq_factor"] = family.Fraction(r.High), family.Fraction(r.Low)
		scaling["original_max_position_embeddings"] = r.Original
	}
	return scaling
}
