package modelcost

import (
	"math"
	"os"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/lab/roofline"
)

func read(t *testing.T, name string) Model {
	t.Helper()
	m, err := Read("testdata/" + name + ".json")
	expect.OK(t, err)
	return m
}

var alone = Work{Sequence: 4096, Batch: 1, Tensor: 1, Experts: 1}

// TestParameters holds the numbers of parameters to the published ones. Configurations are those of the
// models on Hugging Face, without the fields that name files and tokens.
func TestParameters(t *testing.T) {
	for _, c := range []struct {
		name      string
		main, mtp float64
		source    string
		tolerance float64 // half of the last published digit; 0: all digits are published
	}{
		{"llama-3-8b", 8030261248, 0, "safetensors index of meta-llama/Meta-Llama-3-8B", 0},
		{"llama-3-70b", 70553706496, 0, "safetensors index of meta-llama/Meta-Llama-3-70B", 0},
		{"llama-3-405b", 405e9, 0, "Llama Team 2024, The Llama 3 Herd of Models, table 3", 1e9},
		{"qwen2.5-7b", 7615616512, 0, "safetensors index of Qwen/Qwen2.5-7B", 0},
		{"qwen3-8b", 8.2e9, 0, "model card of Qwen/Qwen3-8B", 0.05e9},
		{"qwen3-30b-a3b", 30.5e9, 0, "model card of Qwen/Qwen3-30B-A3B", 0.05e9},
		{"qwen3-235b-a22b", 235e9, 0, "model card of Qwen/Qwen3-235B-A22B", 0.5e9},
		{"gemma-2-9b", 9241705984, 0, "safetensors index of google/gemma-2-9b", 0},
		{"gemma-3-1b", 999885952, 0, "safetensors index of google/gemma-3-1b-pt", 0},
		{"mixtral-8x7b", 46702792704, 0, "safetensors index of mistralai/Mixtral-8x7B-v0.1", 0},
		// 14e9 of prediction in the repository's table count embedding and head again, 0.9e9 each.
		{"deepseek-v3", 671e9, 11.5e9, "deepseek-ai/DeepSeek-V3, README_WEIGHTS.md", 0.5e9},
		{"kimi-k2", 1.04e12, 0, "Kimi Team 2025, Kimi K2, table 2; the shape is DeepSeek-V3's with other numbers", 0.02e12},
	} {
		layers, err := read(t, c.name).Layers(alone)
		expect.OK(t, err)
		main, mtp := 0.0, 0.0
		for _, l := range layers {
			if strings.HasPrefix(l.Name, "mtp") {
				mtp += float64(l.Parameters)
			} else {
				main += float64(l.Parameters)
			}
		}
		if math.Abs(main-c.main) > c.tolerance || math.Abs(mtp-c.mtp) > c.tolerance {
			t.Errorf("%s: %.0f and %.0f parameters, want %.0f and %.0f (%s)", c.name, main, mtp, c.main, c.mtp, c.source)
		}
	}
}

// TestMultiplyAdds: a block's products are tokens times parameters, and attention's are two for each pair.
func TestMultiplyAdds(t *testing.T) {
	layers, err := read(t, "llama-3-8b").Layers(alone)
	expect.OK(t, err)
	const s, h, wide = 4096, 4096, 14336
	if got, want := layers[1].MultiplyAdds, float64(s*h*(h+2*1024+h+3*wide)+2*h*s*(s+1)/2); got != want {
		t.Errorf("a block has %g multiply-adds, want %g", got, want)
	}
	if got, want := layers[33].MultiplyAdds, float64(s*h*128256); got != want {
		t.Errorf("the head has %g, want %g", got, want)
	}
	long := Work{Sequence: 8192, Batch: 1, Tensor: 1, Experts: 1}
	layers, err = read(t, "gemma-2-9b").Layers(long)
	expect.OK(t, err)
	// Windows of 4096 on 8192 tokens: 4096·4097/2 + 4096·4096 pairs, else 8192·8193/2; 16 heads of 256.
	if got, want := layers[2].MultiplyAdds-layers[1].MultiplyAdds, float64(2*16*256*(8192*8193/2-4096*4097/2-4096*4096)); got != want {
		t.Errorf("a block without window has %g more than one with a window, want %g", got, want)
	}
}

// TestHalves: halves of blocks have the sum of a block's costs, and the names of their kinds.
func TestHalves(t *testing.T) {
	m := read(t, "deepseek-v3")
	whole, err := m.Layers(alone)
	expect.OK(t, err)
	half := alone
	half.Half = true
	halves, err := m.Layers(half)
	expect.OK(t, err)
	if halves[6].Name != "block.2.mlp" || halves[7].Name != "block.3.mla" || halves[8].Name != "block.3.moe" {
		t.Errorf("halves are %s, %s, %s", halves[6].Name, halves[7].Name, halves[8].Name)
	}
	for b := range 61 {
		one, first, second := whole[1+b], halves[1+2*b], halves[2+2*b]
		if one.Parameters != first.Parameters+second.Parameters || math.Abs(one.MultiplyAdds-first.MultiplyAdds-second.MultiplyAdds) > 1e-9*one.MultiplyAdds {
			t.Errorf("%s has %d parameters, its halves %d and %d", one.Name, one.Parameters, first.Parameters, second.Parameters)
		}
	}
}

// TestEstimate: large products take the seconds of their operations on the GPU, and more ranks take less.
func TestEstimate(t *testing.T) {
	g, err := roofline.Known("h100")
	expect.OK(t, err)
	m := read(t, "deepseek-v3")
	w := alone
	w.Experts = 64
	layers, err := m.Layers(w)
	expect.OK(t, err)
	table := Estimate(layers, g)
	least := 2 * layers[10].MultiplyAdds / g.Matrix
	if got := table.Layers[10].Forward; got < least || got > 3*least {
		t.Errorf("forward of %s takes %g s, operations alone %g", layers[10].Name, got, least)
	}
	if table.Clock != "estimated" || table.Device != "h100" {
		t.Errorf("clock %q, device %q", table.Clock, table.Device)
	}
	w.Tensor = 2
	shared, err := m.Layers(w)
	expect.OK(t, err)
	for l, x := range Estimate(shared, g).Layers {
		y := table.Layers[l]
		if x.Seconds() >= y.Seconds() || x.Bytes.Static() >= y.Bytes.Static() || x.Bytes.Activations > y.Bytes.Activations {
			t.Errorf("%s on two ranks: %g s, %+v; on one %g s, %+v", x.Name, x.Seconds(), x.Bytes, y.Seconds(), y.Bytes)
		}
	}
	if head := table.Layers[63]; head.Name != "head" || head.Bytes.Optimizer != 12*(7168*129280+7168) {
		t.Errorf("%s has %+v", head.Name, head.Bytes)
	}
	w.Tensor = 3
	if _, err := m.Layers(w); err == nil || err.Error() != "num_attention_heads: 128 on 3 ranks, want a divisor" {
		t.Errorf("error %v", err)
	}
}

// TestActivations: a block with as many keys as heads keeps 16·s·b·h and 6·s·b·i bytes, with i channels of
// its feed-forward layer. Korthikanti et al. 2022 have 34·s·b·h for GPT-2's block without scores: these 16,
// two masks of dropout, and 16 for two tensors of 4·h channels where a gate makes three of i.
func TestActivations(t *testing.T) {
	m, err := parse([]byte(`{"model_type": "llama", "vocab_size": 1000, "hidden_size": 512, "intermediate_size": 2048,
		"num_hidden_layers": 1, "num_attention_heads": 8}`))
	expect.OK(t, err)
	g, err := roofline.Known("h100")
	expect.OK(t, err)
	layers, err := m.Layers(Work{Sequence: 128, Batch: 2, Tensor: 1, Experts: 1})
	expect.OK(t, err)
	if got, want := Estimate(layers, g).Layers[1].Bytes.Activations, int64(128*2*(16*512+2*3*2048)); got != want {
		t.Errorf("a block keeps %d bytes, want %d", got, want)
	}
}

// TestRefused: what has no rule is refused by name.
func TestRefused(t *testing.T) {
	const llama = `{"model_type": "llama", "vocab_size": 1000, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 2, "num_attention_heads": 8`
	expect.OK(t, func() error { _, err := parse([]byte(llama + "}")); return err }())
	for text, want := range map[string]string{
		`{}`:                                              "model_type is missing",
		`{"model_type": "mamba2"}`:                        `model_type "mamba2": no rule for its layers, want one of llama, qwen2,`,
		`{"model_type": "llama"}`:                         "hidden_size is missing",
		llama + `, "loops": 3}`:                           `loops: byte 150: no field of model_type "llama" that has a rule`,
		llama + `, "mlp_bias": true}`:                     "mlp_bias: byte 153: true is not supported, want false",
		llama + `, "sliding_window": 512}`:                "sliding_window: byte 159: 512 is not supported, want null",
		llama + `, "num_key_value_heads": 3}`:             "num_key_value_heads: byte 164: 3 does not divide num_attention_heads, 8",
		llama + `, "num_key_value_heads": 0}`:             "num_key_value_heads: byte 164: 0: want an integer from 1",
		strings.Replace(llama, "512", "500", 1) + `}`:     "num_attention_heads: byte 138: 8 does not divide hidden_size, 500",
		strings.Replace(llama, "llama", "qwen3", 1) + "}": "head_dim is missing",
		llama[:40]: "unexpected end of JSON",
	} {
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
	text, err := os.ReadFile("testdata/gemma-2-9b.json")
	expect.OK(t, err)
	if _, err := parse([]byte(strings.Replace(string(text), `"sliding_window": 4096`, `"sliding_window": 4096, "layer_types": ["chunked_attention"]`, 1))); err == nil || !strings.Contains(err.Error(), "layer_types: byte") {
		t.Errorf("error %v", err)
	}
}
