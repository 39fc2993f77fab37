package weights

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/kind/moe"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
)

// tinyMoE is the config.json of a LLaMA-MoE. Names and defaults are those of LlamaMoEConfig, in the
// code that comes with its checkpoints.
const tinyMoE = `"model_type": "llama_moe", "architectures": ["LlamaMoEForCausalLM"], "hidden_size": 16, "intermediate_size": 36, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 1, "max_position_embeddings": 16, "vocab_size": 11, "rms_norm_eps": 1e-06, "num_experts": 3, "num_selects": 2,
  "size_experts": [[12, 12, 12], [12, 12, 12]], "gate_type": "TopKBalancedNoisyGate", "gate_use_softmax": true, "gate_use_balance": true,
  "gate_balance_loss_weight": 0.01, "gate_noise_epsilon": 0.01, "calculator_type": "UniversalCalculator", "multiply_gate_scores": true,
  "score_scale_factor": 4.0, "add_weight_norm": false, "drop_tokens": true, "dropped_padding": "zero", "capacity_factor": 1.25, "pretraining_tp": 1`

// llamaMoE renames a Mixtral's tensors, and adds what a LLaMA-MoE has besides.
func llamaMoE(dtype, network string, noise bool) *foreign {
	f := newLlama(dtype, false, "model.", 3)
	f.config = fmt.Sprintf(`%s, "gate_network": %q, "gate_add_noise": %v`, tinyMoE, network, noise)
	expert := regexp.MustCompile(`block_sparse_moe\.experts\.(\d)\.(w\d)\.weight`)
	part := map[string]string{"w1": "gate", "w3": "up", "w2": "down"}
	f.rename(func(name string) string {
		if m := expert.FindStringSubmatch(name); m != nil {
			return strings.Replace(name, m[0], "mlp.calculator.experts.weight_"+part[m[2]]+"."+m[1], 1)
		}
		return strings.Replace(name, "block_sparse_moe.gate.", map[string]string{"mlp": "mlp.gate.gate_network.0.", "linear": "mlp.gate.gate_network."}[network], 1)
	})
	for b := range 2 {
		at := fmt.Sprintf("model.layers.%d.", b)
		if network == "mlp" {
			f.copy(at+"mlp.gate.gate_network.2.weight", at+"self_attn.o_proj.weight", 3, 3)
		}
		if noise {
			f.copy(at+"mlp.gate.weight_noise.weight", at+"self_attn.q_proj.weight", 3, 16)
		}
	}
	return f
}

// rename gives tensors other names.
func (f *foreign) rename(to func(string) string) {
	for name := range maps.Clone(f.shape) {
		if other := to(name); other != name {
			f.shape[other], f.values[other] = f.shape[name], f.values[name]
			delete(f.shape, name)
			delete(f.values, name)
		}
	}
}

// copy makes a tensor of the first values of another.
func (f *foreign) copy(name, from string, rows, cols int) {
	f.shape[name], f.values[name] = []int{rows, cols}, f.values[from][:rows*cols*f.size()]
}

// packed5 makes one tensor of a Mixtral's experts of a block, as Transformers 5 holds them.
func packed5(dtype string) *foreign {
	f := newLlama(dtype, false, "model.", 3)
	for b := range 2 {
		at := fmt.Sprintf("model.layers.%d.", b)
		from, to := at+"block_sparse_moe.", at+"mlp."
		f.shape[to+"experts.gate_up_proj"], f.shape[to+"experts.down_proj"] = []int{3, 24, 16}, []int{3, 16, 12}
		for e := range 3 {
			expert := fmt.Sprintf("%sexperts.%d.", from, e)
			f.values[to+"experts.gate_up_proj"] = slices.Concat(f.values[to+"experts.gate_up_proj"], f.values[expert+"w1.weight"], f.values[expert+"w3.weight"])
			f.values[to+"experts.down_proj"] = append(f.values[to+"experts.down_proj"], f.values[expert+"w2.weight"]...)
		}
	}
	f.rename(func(name string) string { return strings.Replace(name, "block_sparse_moe.gate.", "mlp.gate.", 1) })
	maps.DeleteFunc(f.shape, func(name string, _ []int) bool { return strings.Contains(name, "block_sparse_moe") })
	return f
}

// isMoE reports whether the model is a LLaMA-MoE.
func (f *foreign) isMoE() bool { return strings.HasPrefix(f.config, tinyMoE) }

func (f *foreign) scale() float64 {
	if f.isMoE() {
		return 4
	}
	return 1
}

// scores returns the router's logits.
func (f *foreign) scores(at string, x []float64) []float64 {
	switch {
	case f.isMoE() && f.shape[at+"mlp.gate.gate_network.2.weight"] != nil:
		inner := f.linear(at+"mlp.gate.gate_network.0.weight", x)
		for k, a := range inner {
			inner[k] = math.Tanh(a)
		}
		return f.linear(at+"mlp.gate.gate_network.2.weight", inner)
	case f.isMoE():
		return f.linear(at+"mlp.gate.gate_network.weight", x)
	case f.shape[at+"mlp.gate.weight"] != nil:
		return f.linear(at+"mlp.gate.weight", x)
	}
	return f.linear(at+"block_sparse_moe.gate.weight", x)
}

// expert returns what an expert makes of x.
func (f *foreign) expert(at string, e int, x []float64) []float64 {
	switch {
	case f.isMoE():
		of := func(part string) [][]float64 {
			return f.matrix(fmt.Sprintf("%smlp.calculator.experts.weight_%s.%d", at, part, e))
		}
		return gatedBy(of("gate"), of("up"), of("down"), x)
	case f.shape[at+"mlp.experts.gate_up_proj"] != nil:
		gateup := f.matrix(at + "mlp.experts.gate_up_proj")[24*e:]
		return gatedBy(gateup[:12], gateup[12:24], f.matrix(at + "mlp.experts.down_proj")[16*e:][:16], x)
	}
	return f.gated(fmt.Sprintf("%sblock_sparse_moe.experts.%d.", at, e), "w1", "w3", "w2", x)
}

// forms are models with experts in the forms that other programs write.
func forms(dtype string) map[string]*foreign {
	return map[string]*foreign{
		"gate of two matrices": llamaMoE(dtype, "mlp", false), "noise": llamaMoE(dtype, "mlp", true), "gate of one": llamaMoE(dtype, "linear", true),
		"packed": packed5(dtype),
	}
}

// publishedMoE is the loss and the norm of its gradient that LLaMA-MoE's gate, experts and
// calculator give for these weights (modeling_llama_moe_hf.py, commit 3577be8, not training).
// The blocks are Hugging Face's modules, all in float64 (see published).
var publishedMoE = map[string][2]float64{
	"F32/gate of two matrices":  {14.245590615991766, 5.651354628553536},
	"F32/gate of one":           {14.231775155042277, 5.371499966848908},
	"BF16/gate of two matrices": {14.247916376334338, 5.631120754701438},
	"BF16/gate of one":          {14.234797778559571, 5.363514274390472},
}

// A directory of LLaMA-MoE, or of Mixtral with packed experts, comes back byte for byte. Its loss
// is that of a plain float64 model of the same bytes, and that of the published code.
func TestExpertForms(t *testing.T) {
	for _, dtype := range []string{"F32", "BF16"} {
		for name, f := range forms(dtype) {
			for _, each := range []int{0, 5} {
				dir, out := f.directory(t, each), t.TempDir()
				w := imported(t, dir)
				expect.OK(t, w.WriteHuggingFace(out, "", nil))
				entries, err := os.ReadDir(dir)
				expect.OK(t, err)
				for _, e := range entries {
					if !bytes.Equal(read(t, filepath.Join(dir, e.Name())), read(t, filepath.Join(out, e.Name()))) {
						t.Errorf("%s, %s, %d a file: %s has changed", dtype, name, each, e.Name())
					}
				}
				w, err = w.Fit(w.Config.Model)
				expect.OK(t, err)
				tokens, targets := []int32{3, 0, 10, 7, 7, 1}, []int32{0, 10, 7, 7, 1, 5}
				loss, norm := loaded(t, w, w.Config.Model, tokens, targets)
				pairs := [][2]float64{{loss, f.loss(tokens, targets)}}
				if values, ok := publishedMoE[dtype+"/"+name]; ok {
					pairs = append(pairs, [2]float64{loss, values[0]}, [2]float64{norm, values[1]})
				}
				for _, v := range pairs {
					if !(math.Abs(v[0]-v[1]) <= 1e-10*v[1]) {
						t.Errorf("%s, %s: loss or norm of the gradient %v, want %v", dtype, name, v[0], v[1])
					}
				}
			}
		}
	}
}

// A model whose weights are written in the form of another program is read back as the same model.
func TestWriteLlamaMoE(t *testing.T) {
	c := model.Config{Family: "llama", Blocks: 2, Hidden: 8, Heads: 2, KeyValueHeads: 1, Intermediate: 6, Sequence: 16, Vocab: 11, NormEps: 1e-5,
		Rope: model.Rope{Base: 10000, Scaling: "linear", Factor: 2}}.With(moe.Experts{Count: 4, Top: 2, Scale: 3, Squashed: true})
	linear, other := c, c
	modeltest.Edit(&linear, func(k *moe.Experts) { k.Squashed = false })
	other.Rope = model.Rope{Base: 5e5, Scaling: "llama3", Factor: 8, Low: 1, High: 4, Original: 8192}
	for _, want := range []model.Config{c, linear, other} {
		got, err := parseConfig(endingConfig(want, 2).Text)
		if err != nil || !reflect.DeepEqual(got.Model, want) || got.End != 2 || got.form.Name != "llama_moe" {
			t.Errorf("%v, %+v, want %+v", err, got.Model, want)
		}
	}
}

// TestParseLlamaMoE: the shape of LLaMA-MoE-3.5B (4/16), whose experts are a sixteenth of
// LLaMA-2 7B's MLP each.
func TestParseLlamaMoE(t *testing.T) {
	sizes := strings.TrimSuffix(strings.Repeat("["+strings.TrimSuffix(strings.Repeat("688, ", 16), ", ")+"], ", 32), ", ")
	c, err := parseConfig(fmt.Appendf(nil, `{"model_type": "llama_moe", "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "num_experts": 16, "num_selects": 4,
		"score_scale_factor": 4.0, "size_experts": [%s], "gate_network": "mlp"}`, sizes))
	expect.OK(t, err)
	want := model.Config{Family: "llama", Blocks: 32, Hidden: 4096, Heads: 32, KeyValueHeads: 32, Intermediate: 688, Sequence: 4096, Vocab: 32000, NormEps: 1e-5,
		Rope: model.Rope{Base: 10000}}.With(moe.Experts{Count: 16, Top: 4, Scale: 4, Squashed: true})
	if !reflect.DeepEqual(c.Model, want) || len(c.beside) != 32 {
		t.Errorf("%+v and %d tensors besides, want %+v and 32", c.Model, len(c.beside), want)
	}
	if n := c.Model.Parameters(); n != 6_738_415_616+32*16*(4096+16) {
		t.Errorf("%d parameters", n)
	}
}

func TestParseLlamaMoERefuses(t *testing.T) {
	for source, want := range map[string]string{
		`"num_selects":17`:                                  "num_selects: byte 41: 17 of 16 experts (num_experts): want at most these",
		`"num_experts":15`:                                  "num_experts: byte 41: 15 does not divide intermediate_size, 11008",
		`"num_experts":4096`:                                "num_experts: byte 41: 4096 in each of 32 blocks: want at most 65536 in all",
		`"num_hidden_layers":1,"size_experts":[[7]]`:        "size_experts: byte 64: [[7]]…: want null, or 688 for each of 16 experts in 1 blocks",
		`"size_experts":7`:                                  "size_experts: byte 42: 7…: want null",
		`"gate_network":"deep"`:                             `gate_network: byte 42: "deep" is not supported, want mlp or linear`,
		`"gate_type":"SwitchBalancedGate"`:                  `gate_type: byte 39: "SwitchBalancedGate" is not supported`,
		`"calculator_type":"SwitchDropTokenCalculator"`:     `calculator_type: byte 45: "SwitchDropTokenCalculator"`,
		`"gate_use_softmax":false`:                          "gate_use_softmax: byte 46: false",
		`"multiply_gate_scores":false`:                      "multiply_gate_scores: byte 50: false",
		`"add_weight_norm":true`:                            "add_weight_norm: byte 45: true",
		`"score_scale_factor":0`:                            "score_scale_factor: byte 48: 0: want a number from",
		`"num_hidden_layers":2,"score_scale_factor":[1, 2]`: "score_scale_factor: byte 70: [1,2]: want a number",
		`"gate_add_noise":1`:                                "gate_add_noise: byte 44: 1: want true or false",
		`"quantization_config":{"bits":4}`:                  `quantization_config: byte 49: {"bits":4} is not supported, want null (or take it out)`,
	} {
		if _, err := parseConfig([]byte(`{"model_type":"llama_moe", ` + source + `}`)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", source, err, want)
		}
	}
}

// Tensors that are no part of what the configuration says are refused by name.
func TestExpertFormsRefuse(t *testing.T) {
	quiet := llamaMoE("F32", "mlp", true)
	quiet.config = strings.Replace(quiet.config, `"gate_add_noise": true`, `"gate_add_noise": false`, 1)
	unlike := llamaMoE("F32", "mlp", false)
	unlike.config = strings.Replace(unlike.config, `"mlp"`, `"linear"`, 1)
	short, both := packed5("F32"), packed5("F32")
	short.config = strings.Replace(short.config, `"num_local_experts": 3`, `"num_local_experts": 4`, 1)
	both.copy("model.layers.1.block_sparse_moe.experts.0.w1.weight", "model.layers.1.self_attn.q_proj.weight", 12, 16)
	for want, f := range map[string]*foreign{
		`mlp.gate.weight_noise.weight" is no part of the model`: quiet,
		`.weight" is no part of the model`:                      unlike,
		`F32 [3 `:                                               short,
		`"model.layers.1.block_sparse_moe.experts.0.w1.weight" is no part of the model`: both,
	} {
		if _, err := OpenHuggingFace(f.directory(t, 0)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
