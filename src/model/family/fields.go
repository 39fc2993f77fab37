package family

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"dynmo/src/files"
)

// Transformers is the release of Hugging Face's library whose fields the tables list.
const Transformers = "5.12.1"

// Use says what dynmo does with a field of config.json.
type Use int

const (
	Used   Use = iota // Form.Read reads the field, or the checkpoint does
	Fixed             // the field must have one of the values in Want; an absent field is right too
	Unused            // the field changes no logit
)

// String returns the word for the use in the table that users read.
func (u Use) String() string { return [...]string{"read", "fixed", "ignored"}[u] }

// Field is a row of the table of fields. Its keys have one use and one source.
type Field struct {
	Keys   string // with a blank between two keys
	Use    Use
	Want   []any  // values of a Fixed field, as JSON decodes them
	Source string // where Transformers reads the keys, or who writes them
}

// has reports whether the row has a key.
func (f Field) has(key string) bool { return slices.Contains(strings.Fields(f.Keys), key) }

// Common are the fields of all model types.
var Common = []Field{
	{"model_type tie_word_embeddings vocab_size", Used, nil, "configuration_utils.py"},
	{"bos_token_id eos_token_id", Used, nil, "generation/configuration_utils.py"}, // for config.json and generation_config.json of an export
	{"architectures dtype torch_dtype transformers_version name_or_path _name_or_path _commit_hash return_dict output_hidden_states output_attentions " +
		"attn_implementation _attn_implementation experts_implementation chunk_size_feed_forward id2label label2id num_labels problem_type pad_token_id",
		Unused, nil, "configuration_utils.py"},
	{"use_cache max_length min_length do_sample early_stopping num_beams temperature top_k top_p typical_p repetition_penalty length_penalty " +
		"no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores return_dict_in_generate " +
		"forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens " +
		"epsilon_cutoff eta_cutoff encoder_repetition_penalty num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold " +
		"assistant_lookbehind target_lookbehind num_beam_groups diversity_penalty",
		Unused, nil, "generation/configuration_utils.py"},
	{"gradient_checkpointing", Unused, nil, "modeling_utils.py"}, // saves memory of training
	{"tokenizer_class", Unused, nil, "models/auto/tokenization_auto.py"},
	{"is_encoder_decoder", Fixed, []any{false, nil}, "configuration_utils.py"},
	{"is_causal", Fixed, []any{true, nil}, "masking_utils.py"}, // false: attention sees later tokens
	{"sliding_window attention_chunk_size layer_types", Fixed, []any{nil}, "cache_utils.py"},
	{"quantization_config transformers_weights fusion_config", Fixed, []any{nil}, "modeling_utils.py"}, // other weights, or another file of weights
	{"auto_map", Fixed, []any{nil}, "models/auto/auto_factory.py"},                                     // code that comes with the model

	{"torchscript use_bfloat16 tf_legacy_loss is_decoder finetuning_task prefix sep_token_id decoder_start_token_id task_specific_params output_past " +
		"xla_device _num_labels _attn_implementation_autoset _attn_implementation_internal _experts_implementation_internal _flash_attn_2_enabled",
		Unused, nil, "configuration_utils.py before 5"},
	{"pruned_heads", Fixed, []any{map[string]any{}, nil}, "configuration_utils.py before 5"},
	{"add_cross_attention tie_encoder_decoder", Fixed, []any{false, nil}, "configuration_utils.py before 5"},
	{"cross_attention_hidden_size", Fixed, []any{nil}, "configuration_utils.py before 5"},

	{"unsloth_version unsloth_fixed", Unused, nil, "written by Unsloth"},
	{"neftune_noise_alpha", Unused, nil, "written by TRL"}, // noise of training
	{"transformers.js_config", Unused, nil, "written for Transformers.js"},
}

// row returns the row of a key. Rows of the form have priority over common rows.
func (f Form) row(key string) (Field, bool) {
	list := slices.Concat(f.Fields, Common)
	i := slices.IndexFunc(list, func(row Field) bool { return row.has(key) })
	if i < 0 {
		return Field{}, false
	}
	return list[i], true
}

// keys returns the keys of all rows.
func (f Form) keys() (list []string) {
	for _, row := range slices.Concat(f.Fields, Common) {
		list = append(list, strings.Fields(row.Keys)...)
	}
	return list
}

// Check returns an error for the first field that no row names, or whose value makes a model that
// dynmo cannot compute.
func (f Form) Check(o files.Object) error {
	keys := slices.SortedFunc(maps.Keys(o), func(a, b string) int { return cmp.Compare(o[a].At, o[b].At) })
	for _, key := range keys {
		row, ok := f.row(key)
		if !ok {
			return o.Fail(key, "unknown; the nearest of `dynmo help fields` is %s: rename it, or remove it if Transformers %s ignores it", files.Nearest(key, f.keys()), Transformers)
		}
		if row.Use == Fixed {
			if err := o.Only(key, row.Want...); err != nil {
				return err
			}
		}
	}
	return nil
}

// Spelling returns which of a field's two names a configuration has. A configuration with both must
// have equal values: Transformers takes the alias, other programs take the other name.
func Spelling(o files.Object, key, alias string) (string, error) {
	a, ok := o[key]
	b, other := o[alias]
	switch {
	case !other:
		return key, nil
	case !ok:
		return alias, nil
	case a.String() != b.String():
		return "", o.Fail(alias, "%.100s, yet %s is %.100s: want the two equal", b, key, a)
	}
	return key, nil
}
