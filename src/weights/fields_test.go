package weights

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/model/family"
)

// declared lists the fields of the configuration classes of Transformers 5.12.1. "base" is
// PreTrainedConfig with what its __post_init__ takes, and the parameters of GenerationConfig, which
// a configuration may have too.
var declared = map[string]string{
	"base": `transformers_version architectures output_hidden_states return_dict dtype chunk_size_feed_forward is_encoder_decoder id2label label2id
		problem_type torch_dtype num_labels name_or_path _commit_hash output_attentions attn_implementation experts_implementation
		max_length min_length do_sample use_cache early_stopping num_beams temperature top_k top_p typical_p repetition_penalty length_penalty
		no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores return_dict_in_generate
		forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens
		epsilon_cutoff eta_cutoff encoder_repetition_penalty num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold
		assistant_lookbehind target_lookbehind num_beam_groups diversity_penalty
		model_type quantization_config is_causal sliding_window layer_types auto_map`,
	"gpt2": `vocab_size n_positions n_embd n_layer n_head n_inner activation_function resid_pdrop embd_pdrop attn_pdrop layer_norm_epsilon
		initializer_range summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout scale_attn_weights use_cache
		bos_token_id eos_token_id pad_token_id scale_attn_by_inverse_layer_idx reorder_and_upcast_attn add_cross_attention tie_word_embeddings
		hidden_size max_position_embeddings num_attention_heads num_hidden_layers`,
	"llama": `vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads hidden_act max_position_embeddings
		initializer_range rms_norm_eps use_cache pad_token_id bos_token_id eos_token_id pretraining_tp tie_word_embeddings rope_parameters attention_bias
		attention_dropout mlp_bias head_dim rope_scaling rope_theta partial_rotary_factor original_max_position_embeddings`,
	"mistral": `vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim hidden_act
		max_position_embeddings initializer_range rms_norm_eps use_cache pad_token_id bos_token_id eos_token_id tie_word_embeddings rope_parameters
		sliding_window attention_dropout`,
	"mixtral": `vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim hidden_act
		max_position_embeddings initializer_range rms_norm_eps use_cache pad_token_id bos_token_id eos_token_id tie_word_embeddings sliding_window
		attention_dropout num_experts_per_tok num_local_experts output_router_logits router_aux_loss_coef router_jitter_noise rope_parameters num_experts`,
	"llama_moe": "",
}

// plain is a configuration of each model type in which a member added behind it can be a right one.
var plain = map[string]string{
	"gpt2": `{"model_type":"gpt2"`, "llama": `{"model_type":"llama"`, "mistral": `{"model_type":"mistral","sliding_window":null`, "mixtral": `{"model_type":"mixtral"`,
	"llama_moe": `{"model_type":"llama_moe"`,
}

// TestFields: every field of Transformers has a row. A field that is read is refused if its value has
// another type. A fixed field is refused with another value. Other fields change nothing.
func TestFields(t *testing.T) {
	for name, list := range declared {
		if name == "base" {
			continue
		}
		form, _, _ := family.Named(name)
		rows := make(map[string]family.Field)
		for _, row := range append(slices.Clone(form.Fields), family.Common...) {
			if row.Source == "" || (row.Want != nil) != (row.Use == family.Fixed) {
				t.Errorf("%s: row %+v", name, row)
			}
			for key := range strings.FieldsSeq(row.Keys) {
				if _, before := rows[key]; !before { // the first row counts
					rows[key] = row
				}
			}
		}
		for _, key := range strings.Fields(declared["base"] + " " + list) {
			if _, ok := rows[key]; !ok {
				t.Errorf("%s: %s has no row", name, key)
			}
		}
		same, err := parseConfig([]byte(plain[name] + "}"))
		expect.OK(t, err)
		add := func(key, value string) (Config, error) {
			if key == "model_type" || key == "sliding_window" && name == "mistral" {
				return parseConfig([]byte(`{"model_type":` + map[bool]string{true: value, false: `"mistral","sliding_window":` + value}[key == "model_type"] + "}"))
			}
			return parseConfig([]byte(plain[name] + `,"` + key + `":` + value + "}"))
		}
		refused := func(key string) {
			if _, err := add(key, `{"x":[1]}`); err == nil || !strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %s = {...}: error %v", name, key, err)
			}
		}
		unchanged := func(key, value string) {
			if c, err := add(key, value); err != nil || !reflect.DeepEqual(c.Model, same.Model) || c.End != same.End {
				t.Errorf("%s: %s = %s: %v, another model", name, key, value, err)
			}
		}
		for key, row := range rows {
			switch {
			case strings.HasSuffix(key, "s_token_id"): // written to exports, of any form
			case row.Use == family.Used:
				refused(key)
			case row.Use == family.Fixed:
				refused(key)
				for _, want := range row.Want {
					text, err := json.Marshal(want)
					expect.OK(t, err)
					unchanged(key, string(text))
				}
			default:
				for _, value := range []string{`{"x":[1]}`, "17", "true", "null"} {
					unchanged(key, value)
				}
			}
		}
	}
}

// TestFieldsRefuse: fields that change the model, whatever other programs make of them.
func TestFieldsRefuse(t *testing.T) {
	const llama3 = `{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":8192}`
	const head = `{"num_attention_heads":8,"n_head":4,"n_embd":16,"model_type":"gpt2"`
	for _, c := range []struct{ name, source, want string }{
		{"unknown", `{"model_type":"gpt2","logit_scale":2}`, "logit_scale: byte 35: unknown; the nearest of `dynmo help fields` is "},
		{"mistyped", `{"model_type":"llama","num_atention_heads":4}`, "num_atention_heads: byte 43: unknown; the nearest of `dynmo help fields` is num_attention_heads: rename it, or remove it if Transformers"},
		{"unknown though null", `{"model_type":"llama","embedding_multiplier":null}`, "embedding_multiplier: byte 45: unknown; the nearest"},
		{"of another type", `{"model_type":"gpt2","rope_theta":1e4}`, "rope_theta: byte 34: unknown; the nearest"},
		{"both directions", plain["llama"] + `,"is_causal":false}`, "is_causal: byte 34: false is not supported, want true or null (or take it out)"},
		{"GPT-2 in both directions", plain["gpt2"] + `,"is_causal":false}`, "is_causal: byte 33: false is not supported"},
		{"quantized", plain["mixtral"] + ",\"quantization_config\":{\n  \"bits\": 4\n}}", `quantization_config: byte 46: {"bits":4} is not supported, want null (or take it out)`},
		{"kinds of layers", plain["llama"] + `,"layer_types":["sliding_attention"]}`, `layer_types: byte 36: ["sliding_attention"] is not supported`},
		{"code of its own", plain["llama"] + `,"auto_map":{"AutoModel":"x.M"}}`, "auto_map: byte 33: "},
		{"another file", plain["llama"] + `,"transformers_weights":"b.safetensors"}`, "transformers_weights: byte 45: "},
		{"biases", plain["mixtral"] + `,"attention_bias":true}`, "attention_bias: byte 41: true"},
		{"activation", plain["mistral"] + `,"hidden_act":"gelu"}`, `hidden_act: byte 59: "gelu"`},
		{"pruned heads", plain["gpt2"] + `,"pruned_heads":{"0":[1]}}`, `pruned_heads: byte 36: {"0":[1]}`},
		{"a window by default", `{"model_type":"mistral"}`, "sliding_window is missing, which means 4096: want null"},
		{"a window", `{"model_type":"mistral","sliding_window":4096}`, "sliding_window: byte 41: 4096 is not supported, want null (or take it out)"},
		{"a window of a llama", plain["llama"] + `,"sliding_window":4096}`, "sliding_window: byte 39: 4096"},
		{"scaling beside parameters", plain["llama"] + `,"rope_parameters":{"rope_type":"default","rope_theta":5e5},"rope_scaling":{"rope_type":"linear","factor":2.0}}`,
			`rope_scaling: byte 96: {"rope_type":"linear","factor":2.0} says otherwise than rope_parameters: want one of the two`},
		{"another base", plain["llama"] + `,"rope_theta":1e4,"rope_parameters":{"rope_type":"default","rope_theta":5e5}}`, "rope_theta: byte 35: 10000, yet rope_parameters has 500000: want the two equal"},
		{"a base lost", plain["llama"] + `,"rope_parameters":{"factor":2,"rope_type":"linear","rope_theta":5e5},"rope_scaling":{"type":"linear","factor":2}}`, "rope_scaling: byte 106: "},
		{"positions twice", plain["llama"] + `,"original_max_position_embeddings":4096,"rope_scaling":` + llama3 + "}",
			"original_max_position_embeddings: byte 57: 4096, yet rope_scaling has 8192: want the two equal"},
		{"types twice", plain["llama"] + `,"rope_scaling":{"type":"llama3","rope_type":"linear","factor":2}}`, `rope_scaling: type: byte 45: "llama3", yet rope_type is "linear"`},
		{"unknown scaling", plain["llama"] + `,"rope_scaling":{"type":"linear","factor":2,"attention_factor":2}}`, `rope_scaling: attention_factor: byte 84: unknown for rope_type "linear"`},
		{"scaling of nothing", plain["llama"] + `,"rope_scaling":{"type":"default","factor":2}}`, `rope_scaling: factor: byte 64: unknown for rope_type "default"`},
		{"an alias", head + "}", "num_attention_heads: byte 23: 8, yet n_head is 4: want the two equal"},
		{"an alias alone", `{"model_type":"gpt2","num_attention_heads":7}`, "num_attention_heads: byte 43: 7 does not divide n_embd, 768"},
		{"a default that does not fit", `{"model_type":"llama","hidden_size":48}`, "num_attention_heads is missing, and its default does not fit: 32 does not divide hidden_size, 48: add it with the model's value"},
		{"experts twice", plain["mixtral"] + `,"num_experts":4,"num_local_experts":8}`, "num_experts: byte 38: 4, yet num_local_experts is 8"},
	} {
		if _, err := parseConfig([]byte(c.source)); err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	for a, b := range map[string]string{ // the same model
		`{"model_type":"gpt2","num_attention_heads":4,"hidden_size":16,"num_hidden_layers":2,"max_position_embeddings":8}`: `{"model_type":"gpt2","n_head":4,"n_embd":16,"n_layer":2,"n_positions":8}`,
		`{"model_type":"gpt2","num_attention_heads":4,"n_head":4}`:                                                         `{"model_type":"gpt2","n_head":4}`,
		`{"model_type":"mixtral","num_experts":4}`:                                                                         `{"model_type":"mixtral","num_local_experts":4}`,
		plain["llama"] + `,"rope_parameters":` + llama3 + `,"rope_scaling":` + llama3 + `,"rope_theta":5e5}`:               plain["llama"] + `,"rope_theta":5e5,"rope_scaling":` + llama3 + "}",
		plain["llama"] + `,"rope_parameters":` + llama3 + `,"rope_scaling":{}}`:                                            plain["llama"] + `,"rope_scaling":` + llama3 + "}",
		plain["mistral"] + `,"rms_norm_eps":1e-5,"num_key_value_heads":4}`:                                                 `{"model_type":"llama","rms_norm_eps":1e-5,"num_key_value_heads":4,"intermediate_size":14336,"max_position_embeddings":131072}`,
	} {
		x, err := parseConfig([]byte(a))
		expect.OK(t, err)
		y, err := parseConfig([]byte(b))
		expect.OK(t, err)
		if !reflect.DeepEqual(x.Model, y.Model) {
			t.Errorf("%s: %+v, want %+v", a, x.Model, y.Model)
		}
	}
}
