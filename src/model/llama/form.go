package llama

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"dynmo/src/files"
	"dynmo/src/model"
	"dynmo/src/model/family"
)

var form = FormOf(family.Form{Name: Name, Read: read, Write: func(c model.Config, end int32) map[string]any {
	return Write(Name, "LlamaForCausalLM", c, end)
}})

// mistral is a LLaMA under another name: all positions see all positions before them if
// sliding_window is null.
var mistral = FormOf(family.Form{
	Name:   mistralType,
	Fields: []family.Field{{Keys: window, Use: family.Used, Source: "models/mistral/configuration_mistral.py, only null"}},
	Read: func(o files.Object) (model.Config, error) {
		c := model.Config{
			Family: Name, Vocab: 32000, Sequence: 4096 * 32, Hidden: 4096, Blocks: 32, Heads: 32, KeyValueHeads: 8,
			Intermediate: 14336, NormEps: 1e-6, Rope: model.Rope{Base: 10000},
		}
		if _, ok := o[window]; !ok {
			return c, fmt.Errorf("%s is missing, which means 4096: want null", window)
		}
		return c, cmp.Or(o.Only(window, nil), Read(o, &c))
	},
	Write: func(c model.Config, end int32) map[string]any {
		members := Write(mistralType, "MistralForCausalLM", c, end)
		members[window] = nil
		return members
	},
})

const (
	mistralType = "mistral"
	window      = "sliding_window"
	positions   = "max_position_embeddings"
	original    = "original_max_position_embeddings"
)

// Sources of fields.
const (
	file     = "models/llama/configuration_llama.py"
	ropeFile = "modeling_rope_utils.py"
)

// fields are those that all types of the family have.
var fields = []family.Field{
	{Keys: "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim rms_norm_eps " + positions, Use: family.Used, Source: file},
	{Keys: "rope_parameters rope_scaling rope_theta " + original, Use: family.Used, Source: ropeFile},
	{Keys: "partial_rotary_factor", Use: family.Fixed, Want: []any{1.0, nil}, Source: ropeFile},
	{Keys: "hidden_act", Use: family.Fixed, Want: []any{"silu", "swish"}, Source: file}, // both names mean the same function
	{Keys: "attention_bias mlp_bias", Use: family.Fixed, Want: []any{false}, Source: file},
	{Keys: "initializer_range attention_dropout pretraining_tp", Use: family.Unused, Source: file}, // training, slices of products
	{Keys: "max_sequence_length", Use: family.Unused, Source: file + " before 4.28"},
	{Keys: "is_llama_config", Use: family.Unused, Source: "written by Nanotron"},
	{Keys: "rope_interleaved", Use: family.Fixed, Want: []any{false}, Source: "written by Nanotron"},
}

// FormOf adds to a model type the names and fields that all types of the family share.
func FormOf(f family.Form) family.Form {
	f.Prefix, f.Token, f.Buffers = "model.", "embed_tokens.weight", []string{".rotary_emb.inv_freq"}
	f.Shape = "vocab_size hidden_size intermediate_size num_hidden_layers"
	f.Fields = slices.Concat(f.Fields, fields)
	keep := f.Keep
	f.Keep = func(members map[string]any, from files.Object, c model.Config) {
		members[positions] = max(members[positions].(int), c.Sequence) // no weight depends on their number
		if keep != nil {
			keep(members, from, c)
		}
	}
	return f
}

// read returns the shape that a LlamaConfig describes.
func read(o files.Object) (model.Config, error) {
	c := model.Config{
		Family: Name, Vocab: 32000, Sequence: 2048, Hidden: 4096, Blocks: 32, Heads: 32,
		Intermediate: 11008, NormEps: 1e-6, Rope: model.Rope{Base: 10000},
	}
	return c, Read(o, &c)
}

// Read reads the members that the configurations of all types of the family have.
func Read(o files.Object, c *model.Config) error {
	err := o.Dimensions(
		files.Dimension{Key: "vocab_size", To: &c.Vocab, Limit: family.MaxTokens}, files.Dimension{Key: positions, To: &c.Sequence, Limit: family.MaxTokens},
		files.Dimension{Key: "hidden_size", To: &c.Hidden, Limit: family.MaxHidden}, files.Dimension{Key: "intermediate_size", To: &c.Intermediate, Limit: family.MaxHidden},
		files.Dimension{Key: "num_hidden_layers", To: &c.Blocks, Limit: family.MaxBlocks}, files.Dimension{Key: "num_attention_heads", To: &c.Heads, Limit: family.MaxHidden})
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
		readRope(o, &c.Rope),
	)
}

// readKeyed reads the number of heads with keys; null means all heads.
func readKeyed(o files.Object, c *model.Config) error {
	const key = "num_key_value_heads"
	switch _, ok := o[key]; {
	case ok && o.Absent(key), !ok && c.KeyValueHeads == 0:
		c.KeyValueHeads = c.Heads
		return nil
	default:
		return o.Dimensions(files.Dimension{Key: key, To: &c.KeyValueHeads, Limit: family.MaxHidden})
	}
}

// readRope reads rotary positions. Since Transformers 5 they are in rope_parameters, before in
// rope_theta and rope_scaling. A file with both must say the same in both: Transformers 5 takes
// rope_scaling, other programs take either.
func readRope(o files.Object, r *model.Rope) error {
	if err := o.Number(theta, &r.Base, 1, 1e12); err != nil {
		return err
	}
	given, before := *r, ""
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		if o.Absent(key) || o[key].String() == "{}" {
			continue
		}
		in, err := o[key].Object()
		this := given
		if err == nil {
			err = readScaling(in, &this)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if _, ok := o[theta]; ok && this.Base != given.Base {
			return o.Fail(theta, "%g, yet %s has %g: want the two equal", given.Base, key, this.Base)
		}
		if before != "" && this != *r {
			return o.Fail(key, "%.100s says otherwise than %s: want one of the two", o[key], before)
		}
		*r, before = this, key
	}
	outer := r.Original
	err := o.Dimensions(files.Dimension{Key: original, To: &outer, Limit: family.MaxTokens})
	if err == nil && r.Scaling == model.RopeLlama3 && outer != r.Original {
		return o.Fail(original, "%d, yet %s has %d: want the two equal", outer, before, r.Original)
	}
	return err
}

const theta = "rope_theta"

// variants are the known kinds of rotary positions, and their members besides those of all. Linear
// scaling does not use its original number of positions, which some files have.
var variants = map[string][]string{
	"default": nil, model.RopeLinear: {"factor", original}, model.RopeLlama3: {"factor", "low_freq_factor", "high_freq_factor", original},
}

// readScaling reads the variant and its members.
func readScaling(o files.Object, r *model.Rope) error {
	key, err := family.Spelling(o, "rope_type", "type") // "type" until Transformers 4.43
	if err != nil {
		return err
	}
	name, known := "default", strings.Join(slices.Sorted(maps.Keys(variants)), ", ")
	if !o.Absent(key) {
		name, err = o[key].Text()
		if _, ok := variants[name]; err != nil || !ok {
			return o.Fail(key, "%.100s is not supported, want one of %s", o[key], known)
		}
	}
	for _, member := range slices.Sorted(maps.Keys(o)) {
		if slices.Contains([]string{"rope_type", "type", theta, "partial_rotary_factor"}, member) || slices.Contains(variants[name], member) {
			continue
		}
		if o.Absent(key) { // members of a variant, or a type of layers
			return o.Fail(member, "stands without rope_type, want that, one of %s", known)
		}
		return o.Fail(member, "unknown for rope_type %q: want the file without it, if it changes nothing", name)
	}
	if err := cmp.Or(o.Number(theta, &r.Base, 1, 1e12), o.Only("partial_rotary_factor", 1.0)); err != nil || name == "default" {
		return err
	}
	r.Scaling = name
	if err := o.Required("factor", &r.Factor, 1, 1e6); err != nil || name == model.RopeLinear {
		return err
	}
	if err := cmp.Or(o.Required("low_freq_factor", &r.Low, 1e-6, 1e6), o.Required("high_freq_factor", &r.High, 1e-6, 1e6),
		o.There(original), o.Dimensions(files.Dimension{Key: original, To: &r.Original, Limit: family.MaxTokens})); err != nil {
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
		"hidden_size": c.Hidden, "intermediate_size": c.Intermediate, positions: c.Sequence,
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
