package llama_test

import (
	"strings"
	"testing"

	"dynmo/src/config"
	_ "dynmo/src/kind" // the settings need the keys of every family
)

// TestLlamaShapes: sizes that the settings leave open follow from other settings.
func TestLlamaShapes(t *testing.T) {
	for _, v := range []struct {
		hidden, intermediate, keyed int
		mlp, heads                  int
	}{{4096, 0, 0, 10944, 32}, {4096, 11008, 8, 11008, 8}, {64, 0, 1, 192, 1}, {36, 0, 2, 96, 2}, {12, 5, 4, 5, 4}} {
		c := config.Default()
		c.Assign("model.family", "llama", "model.hidden", v.hidden, "model.heads", 32, "model.intermediate", v.intermediate, "model.key_value_heads", v.keyed)
		if c.Inside() != v.mlp || c.Keyed() != v.heads {
			t.Errorf("%+v: %d channels inside, %d key-value heads, want %d and %d", v, c.Inside(), c.Keyed(), v.mlp, v.heads)
		}
		c.Model.Family = "gpt2"
		if c.Inside() != 4*v.hidden || c.Keyed() != 32 {
			t.Errorf("GPT-2: %d channels inside, %d key-value heads", c.Inside(), c.Keyed())
		}
	}
}

// TestLlamaRefuses: settings that no LLaMA can have are refused by name.
func TestLlamaRefuses(t *testing.T) {
	for sets, want := range map[string]string{
		"":                        "",
		"model.key_value_heads=2": "",
		"model.key_value_heads=3": "model.key_value_heads = 3, model.heads = 4: wanted model.key_value_heads to divide model.heads",
		"model.key_value_heads=8": "model.key_value_heads = 8, model.heads = 4: wanted model.key_value_heads to divide model.heads",
		"model.hidden=12":         "model.hidden = 12, model.heads = 4: wanted an even number of channels of a head",
		"model.rope_scaling=yarn": `model.rope_scaling = "yarn": wanted "none", "linear" or "llama3"`,
		"model.rope_scaling=llama3 model.rope_low_freq_factor=4":                  "wanted model.rope_low_freq_factor to be below model.rope_high_freq_factor",
		"model.rope_low_freq_factor=9":                                            "",
		"model.norm_eps=0":                                                        "model.norm_eps = 0.0: wanted a number above 0",
		"model.family=mamba":                                                      `model.family = "mamba": wanted "gpt2" or "llama"`,
		"model.key_value_heads=2 dynamic.kind=attention":                          "wanted as many key-value heads as heads beside attention",
		"model.key_value_heads=2 dynamic.kind=exit exit.propagate=true":           "",
		"model.key_value_heads=2 dynamic.kind=exit+prune+freeze freeze.when=step": "",
		"dynamic.kind=attention":                                                  "",
		"model.family=gpt2 model.key_value_heads=3":                               "",
	} {
		_, err := config.Load("", append([]string{"model.family=llama"}, strings.Fields(sets)...))
		if got := ""; err != nil || want != "" {
			if err != nil {
				got = err.Error()
			}
			if want == "" || !strings.Contains(got, want) {
				t.Errorf("%s: error %q, want %q", sets, got, want)
			}
		}
	}
}
