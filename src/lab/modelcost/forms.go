package modelcost

import (
	"encoding/json"
	"maps"
	"slices"
)

// form is the rule for one model type. Fields and defaults are those of Hugging Face Transformers.
type form struct {
	name   string
	keys   string           // fields that read reads, or that change no number of operations
	fixed  map[string][]any // fields that must have one of these values, or be absent
	heads  bool             // head_dim must be present
	tied   bool             // the default of tie_word_embeddings
	bias   bool
	normed bool
	double bool
	read   func(r *reader, m *Model)
}

// everyForm has fields of all forms. The later ones change no number of operations.
const everyForm = "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim tie_word_embeddings vocab_size " +
	"rms_norm_eps rope_theta rope_scaling rope_parameters max_position_embeddings original_max_position_embeddings max_sequence_length " +
	"initializer_range attention_dropout pretraining_tp hidden_act hidden_activation rope_interleaved partial_rotary_factor is_llama_config auto_map"

// unbiased are the fields of models whose products have no bias.
var unbiased = map[string][]any{"attention_bias": {false}, "mlp_bias": {false}}

// gemmas are those of Gemma's text models.
var gemmas = map[string][]any{"attention_bias": {false}, "use_bidirectional_attention": {false, nil}}

var forms = []form{
	{name: "llama", fixed: unbiased, read: dense},
	{name: "qwen2", keys: "sliding_window max_window_layers layer_types", fixed: map[string][]any{"use_sliding_window": {false}}, bias: true, read: whole},
	{
		name: "qwen3", keys: "sliding_window max_window_layers layer_types",
		fixed: map[string][]any{"use_sliding_window": {false}, "attention_bias": {false}}, heads: true, normed: true, read: whole,
	},
	{
		name: "qwen3_moe", keys: "sliding_window max_window_layers layer_types num_experts num_experts_per_tok moe_intermediate_size norm_topk_prob output_router_logits router_aux_loss_coef",
		fixed: map[string][]any{"use_sliding_window": {false}, "attention_bias": {false}, "decoder_sparse_step": {1.0}, "mlp_only_layers": {[]any{}, nil}},
		heads: true, normed: true,
		read: func(r *reader, m *Model) {
			whole(r, m)
			m.experts, m.chosen, m.expert = r.number("num_experts", limit), r.number("num_experts_per_tok", limit), r.number("moe_intermediate_size", limit)
			m.mix(r, 0)
		},
	},
	{
		name: "mixtral", keys: "num_local_experts num_experts_per_tok output_router_logits router_aux_loss_coef router_jitter_noise",
		fixed: map[string][]any{"sliding_window": {nil}},
		read: func(r *reader, m *Model) {
			dense(r, m)
			m.experts, m.chosen, m.expert = r.number("num_local_experts", limit), r.number("num_experts_per_tok", limit), m.wide
			m.mix(r, 0)
		},
	},
	{
		name: "gemma2", keys: "sliding_window layer_types attn_logit_softcapping final_logit_softcapping query_pre_attn_scalar cache_implementation",
		fixed: gemmas, heads: true, tied: true, double: true,
		read: func(r *reader, m *Model) {
			dense(r, m)
			m.slide(r, 2) // every second block sees all tokens
		},
	},
	{
		name: "gemma3_text", keys: "sliding_window sliding_window_pattern _sliding_window_pattern layer_types attn_logit_softcapping final_logit_softcapping query_pre_attn_scalar " +
			"cache_implementation rope_local_base_freq",
		fixed: gemmas, heads: true, tied: true, normed: true, double: true,
		read: func(r *reader, m *Model) {
			dense(r, m)
			m.slide(r, r.numberOr("_sliding_window_pattern", r.numberOr("sliding_window_pattern", 6)))
		},
	},
	{
		name: deepSeek, keys: "q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim qk_head_dim v_head_dim n_routed_experts n_shared_experts num_experts_per_tok " +
			"moe_intermediate_size first_k_dense_replace num_nextn_predict_layers n_group topk_group topk_method scoring_func routed_scaling_factor norm_topk_prob " +
			"aux_loss_alpha seq_aux ep_size quantization_config",
		fixed: map[string][]any{"attention_bias": {false}, "moe_layer_freq": {1.0}},
		read: func(r *reader, m *Model) {
			dense(r, m)
			m.latent = latent{
				queries: r.numberOr("q_lora_rank", 0), keys: r.number("kv_lora_rank", limit), plain: r.number("qk_nope_head_dim", limit),
				rotated: r.number("qk_rope_head_dim", limit), values: r.number("v_head_dim", limit),
			}
			m.experts, m.chosen, m.expert = r.number("n_routed_experts", limit), r.number("num_experts_per_tok", limit), r.number("moe_intermediate_size", limit)
			m.shared = m.expert * r.countOr("n_shared_experts", 0)
			if r.err == nil {
				r.err = r.There("first_k_dense_replace")
			}
			m.mix(r, r.countOr("first_k_dense_replace", 0))
			m.mtps = r.countOr("num_nextn_predict_layers", 0)
			if r.err == nil && m.mtps > mostBlocks {
				r.err = r.Fail("num_nextn_predict_layers", "want at most %d", mostBlocks)
			}
		},
	},
}

// dense reads the width of the feed-forward layers.
func dense(r *reader, m *Model) { m.wide = r.number("intermediate_size", limit) }

// whole is dense for models whose blocks all attend to all tokens.
func whole(r *reader, m *Model) {
	dense(r, m)
	for _, name := range layerTypes(r, m) {
		if name != fullAttention {
			r.err = r.Fail("layer_types", "%.100q, want %s: use_sliding_window is not true", name, fullAttention)
		}
	}
}

const (
	deepSeek      = "deepseek_v3"
	fullAttention = "full_attention"
)

// mix gives experts to the blocks from `first` on.
func (m *Model) mix(r *reader, first int) {
	if r.err == nil && m.chosen > m.experts {
		r.err = r.Fail("num_experts_per_tok", "%d of %d experts", m.chosen, m.experts)
	}
	for l := range m.sparse {
		m.sparse[l] = l >= first
	}
}

// slide sets the windows of blocks. Without layer_types each `every`-th block attends to all tokens.
func (m *Model) slide(r *reader, every int) {
	window := r.number("sliding_window", limit)
	types := layerTypes(r, m)
	for l := range m.windows {
		sliding := (l+1)%every != 0
		if types != nil && r.err == nil {
			if sliding = types[l] == "sliding_attention"; !sliding && types[l] != fullAttention {
				r.err = r.Fail("layer_types", "%.100q, want %s or sliding_attention", types[l], fullAttention)
			}
		}
		if sliding {
			m.windows[l] = window
		}
	}
}

// layerTypes returns the types of the blocks; nil if the configuration has none.
func layerTypes(r *reader, m *Model) (types []string) {
	if r.Absent("layer_types") || r.err != nil {
		return nil
	}
	if err := json.Unmarshal(r.Object["layer_types"].JSON, &types); err != nil || len(types) != m.blocks {
		r.err = r.Fail("layer_types", "want %d texts, one for each block", m.blocks)
	}
	return types
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
