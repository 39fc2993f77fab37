package weights

import (
	"reflect"
	"strings"
	"testing"

	"dynmo/src/kind/moe"
	"dynmo/src/model"
)

// Shapes as the published configurations have them, with the keys of Transformers 4 and 5.
func TestParseLlama(t *testing.T) {
	llama2 := model.Config{Family: "llama", Blocks: 32, Hidden: 4096, Heads: 32, KeyValueHeads: 32, Intermediate: 11008, Sequence: 4096, Vocab: 32000,
		NormEps: 1e-5, Rope: model.Rope{Base: 10000}}
	llama31 := model.Config{Family: "llama", Blocks: 32, Hidden: 4096, Heads: 32, KeyValueHeads: 8, Intermediate: 14336, Sequence: 131072, Vocab: 128256,
		NormEps: 1e-5, Rope: model.Rope{Base: 500000, Scaling: "llama3", Factor: 8, Low: 1, High: 4, Original: 8192}}
	mixtral := model.Config{Family: "llama", Blocks: 32, Hidden: 4096, Heads: 32, KeyValueHeads: 8, Intermediate: 14336, Sequence: 32768, Vocab: 32000,
		NormEps: 1e-5, Rope: model.Rope{Base: 1e6}}.With(moe.Experts{Count: 8, Top: 2})
	linear := llama2
	linear.Rope.Scaling, linear.Rope.Factor = "linear", 4
	defaults := llama2
	defaults.Sequence, defaults.NormEps = 2048, 1e-6
	const shape31 = `{"model_type":"llama","intermediate_size":14336,"num_key_value_heads":8,"max_position_embeddings":131072,"vocab_size":128256,"rms_norm_eps":1e-05,
		"eos_token_id":[128001,128008],"attention_bias":false,"mlp_bias":false,"head_dim":128,`
	const scaling31 = `"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192,"rope_type":"llama3"`
	for source, want := range map[string]model.Config{
		`{"model_type":"llama"}`: defaults,
		`{"model_type":"llama","max_position_embeddings":4096,"rms_norm_eps":1e-5,"rope_scaling":null,"num_key_value_heads":null,"head_dim":null}`:             llama2,
		`{"model_type":"llama","max_position_embeddings":4096,"rms_norm_eps":1e-5,"rope_scaling":{"type":"linear","factor":4}}`:                                linear,
		`{"model_type":"llama","max_position_embeddings":4096,"rms_norm_eps":1e-5,"rope_parameters":{"rope_type":"linear","factor":4,"rope_theta":10000.0}}`:   linear,
		`{"model_type":"llama","max_position_embeddings":4096,"rms_norm_eps":1e-5,"rope_parameters":{"rope_type":"default","rope_theta":10000.0},"dtype":"x"}`: llama2,
		shape31 + `"rope_theta":500000.0,"rope_scaling":{` + scaling31 + `}}`:                                                                                  llama31,
		shape31 + `"rope_parameters":{"rope_theta":500000.0,` + scaling31 + `}}`:                                                                               llama31,
		`{"model_type":"mixtral","max_position_embeddings":32768,"sliding_window":null,"rope_theta":1000000.0,"num_local_experts":8}`:                          mixtral,
		`{"model_type":"mixtral","max_position_embeddings":32768,"rope_parameters":{"rope_type":"default","rope_theta":1000000.0}}`:                            mixtral,
	} {
		c, err := parseConfig([]byte(source))
		if err != nil || !reflect.DeepEqual(c.Model, want) || string(c.Text) != source {
			t.Errorf("%s: %v, %+v, want %+v", source, err, c.Model, want)
		}
	}
	if text := string(newConfig(llama31).Text); !strings.Contains(text, `"factor": 8.0,`) || !strings.Contains(text, `"rms_norm_eps": 1e-05,`) || !strings.Contains(text, `"rope_theta": 500000.0,`) {
		t.Errorf("written: %s", text)
	}
	trained := mixtral.With(moe.Experts{Count: 8, Top: 2, Auxiliary: 0.02}) // 0.02·32 blocks / 2 choices
	if text := string(newConfig(trained).Text); !strings.Contains(text, `"router_aux_loss_coef": 0.32,`) {
		t.Errorf("%s", text)
	}
	for _, want := range []model.Config{llama2, llama31, mixtral, linear} {
		c, err := parseConfig(endingConfig(want, 2).Text)
		if err != nil || !reflect.DeepEqual(c.Model, want) || c.End != 2 {
			t.Errorf("written and read: %v, %+v, want %+v", err, c, want)
		}
		total := int64(0)
		for _, p := range want.Weights() {
			total += p.Bytes() / 4
		}
		// Parameters as the models' cards have them: 6.74, 8.03 and 46.7 thousand million.
		if n := map[int]int64{32: 6_738_415_616, 8: 8_030_261_248}[want.KeyValueHeads]; model.KindOf[moe.Experts](want).Count == 0 && total != n || model.KindOf[moe.Experts](want).Count > 0 && total != 46_702_792_704 {
			t.Errorf("%d parameters of %+v", total, want)
		}
	}
}

func TestParseLlamaRefuses(t *testing.T) {
	for source, want := range map[string]string{
		`"hidden_act":"gelu"`:                                 `hidden_act: byte 36: "gelu" is not supported, want silu or swish`,
		`"attention_bias":true`:                               "attention_bias: byte 40: true is not supported, want false",
		`"mlp_bias":true`:                                     "mlp_bias: byte 34: true",
		`"head_dim":64`:                                       "head_dim: byte 34: 64 is not supported, want null or 128 (or take it out)",
		`"num_attention_heads":7`:                             "num_attention_heads: byte 45: 7 does not divide hidden_size, 4096",
		`"num_attention_heads":4096`:                          "num_attention_heads: byte 45: 4096 heads of 1 channels: want an even number",
		`"num_key_value_heads":5`:                             "num_key_value_heads: byte 45: 5 does not divide num_attention_heads, 32",
		`"num_key_value_heads":0`:                             "num_key_value_heads: byte 45: 0: want an integer from 1",
		`"intermediate_size":0`:                               "intermediate_size: byte 43: 0: want an integer",
		`"rms_norm_eps":0`:                                    "rms_norm_eps: byte 38: 0: want a number from 1e-30 to 1",
		`"rms_norm_eps":"x"`:                                  `rms_norm_eps: byte 38: "x": want a number`,
		`"rope_theta":0`:                                      "rope_theta: byte 36: 0: want a number from 1 to",
		`"tie_word_embeddings":1`:                             "tie_word_embeddings: byte 45: 1: want true or false",
		`"rope_scaling":7`:                                    "rope_scaling: byte 38: want a JSON object",
		`"rope_scaling":{"type":"dynamic"}`:                   `rope_scaling: type: byte 46: "dynamic" is not supported, want one of default, linear, llama3`,
		`"rope_parameters":{"rope_type":"yarn","factor":4.0}`: `rope_parameters: rope_type: byte 54: "yarn" is not supported`,
		`"rope_scaling":{"rope_type":"longrope"}`:             `"longrope" is not supported`,
		`"rope_scaling":{"rope_type":"linear"}`:               "rope_scaling: factor is missing",
		`"rope_scaling":{"factor":2.0}`:                       "rope_scaling: factor: byte 48: stands without rope_type, want that, one of default, linear, llama3",
		`"rope_parameters":{"full_attention":{"rope_type":"default","rope_theta":5e5}}`: "rope_parameters: full_attention: byte 59: stands without rope_type",
		`"rope_scaling":{"rope_type":"linear","factor":0}`:                              "rope_scaling: factor: byte 69: 0: want a number from 1",
		`"rope_scaling":{"rope_type":"llama3","factor":8}`:                              "rope_scaling: low_freq_factor is missing",
		`"rope_parameters":{"partial_rotary_factor":0.5}`:                               "rope_parameters: partial_rotary_factor: byte 66: 0.5 is not supported, want 1",
		`"partial_rotary_factor":0.5`:                                                   "partial_rotary_factor: byte 47: 0.5",
		`"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4,"original_max_position_embeddings":8192}`: "high_freq_factor: byte 110: 4: want more than low_freq_factor, 4",
	} {
		if _, err := parseConfig([]byte(`{"model_type":"llama", ` + source + `}`)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", source, err, want)
		}
	}
	for source, want := range map[string]string{
		`"sliding_window":4096`:                         "sliding_window: byte 41: 4096 is not supported, want null (or take it out)",
		`"num_experts_per_tok":9`:                       "num_experts_per_tok: byte 46: 9 of 8 experts (num_local_experts): want at most these",
		`"num_local_experts":0`:                         "num_local_experts: byte 44: 0: want an integer from 1",
		`"num_local_experts":4096`:                      "num_local_experts: byte 44: 4096 in each of 32 blocks: want at most 65536 in all",
		`"num_local_experts":1,"num_key_value_heads":3`: "num_key_value_heads: byte 68: 3 does not divide",
	} {
		if _, err := parseConfig([]byte(`{"model_type":"mixtral",` + source + `}`)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", source, err, want)
		}
	}
	_, err := parseConfig([]byte(`{"model_type":"gpt_neox"}`))
	if want := `model_type: byte 14: "gpt_neox" is not supported, want one of gpt2, llama, mistral, mixtral, llama_moe`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}
