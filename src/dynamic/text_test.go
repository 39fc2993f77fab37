package dynamic_test

import (
	"testing"

	"dynmo/src/dynamic"
	_ "dynmo/src/kind" // its texts
)

// TestChangeText: a change of every kind, and of several, is reported in plain words.
func TestChangeText(t *testing.T) {
	for _, c := range []struct {
		what string
		of   map[string]any
		want string
	}{
		{"prune", map[string]any{"sparsity": 0.5, "kept": 1.2e6, "prunable": 2.4e6}, "50 % of the prunable weights pruned, 1.2 M of 2.4 M left"},
		{"prune", map[string]any{"sparsity": 0.5}, "50 % of the prunable weights pruned"},
		{"freeze", map[string]any{"layers": 2., "of_all": 16.}, "froze layers 0 to 1 of 16"},
		{"freeze", map[string]any{"layers": 1.}, "froze layer 0"},
		{"thaw", map[string]any{"layers": 6.}, "unfroze layers 0 to 5"},
		{"exit", map[string]any{"share": 0.18, "left": 0.17578, "exit.2.threshold": 0.1573, "exit.10.threshold": 0.38, "exit.0.threshold": 0.5614},
			"17.6 % of the tokens left early in the last step (target 18 %), thresholds 0.561, 0.157, 0.38"},
		{"exit", map[string]any{"share": 0.06, "left": 0.}, "0 % of the tokens left early in the last step (target 6 %)"},
		{"mod", map[string]any{"taken": 0.125, "right": 0.9}, "routed blocks take 12.5 % of the tokens; predictor accuracy 90 %"},
		{"freeze+mod", map[string]any{"layers": 3., "of_all": 10., "taken": 0.1, "right": 0.9},
			"froze layers 0 to 2 of 10; routed blocks take 10 % of the tokens; predictor accuracy 90 %"},
		{"moe", map[string]any{"fullest": 2.3125, "dropped": 0.}, "the busiest expert of a layer has 2.31 times the mean load, no token was dropped"},
		{"moe", map[string]any{"fullest": 2.3125, "dropped": 0.015}, "the busiest expert of a layer has 2.31 times the mean load, 1.5 % of the assignments were dropped"},
		{"melt", map[string]any{"what": "melt", "by_half": 1234., "how": "slowly"}, "melt: by half 1.23 k, how slowly"},
		{"melt", nil, "melt"},
		{"", nil, ""},
	} {
		if got := dynamic.ChangeText(c.what, c.of); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.what, c.of, got, c.want)
		}
	}
}

func TestSignificant(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 0.00012345: "0.000123", 1.5: "1.5", 99.96: "100", 123.456: "123", 45678.9: "45679", -2.345678: "-2.35", 1.5e9: "1.5e+09",
	} {
		if got := dynamic.Significant(x); got != want {
			t.Errorf("%v: %q, want %q", x, got, want)
		}
	}
}
