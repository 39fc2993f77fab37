package config

import (
	"strings"
	"testing"
)

// TestModThatRoutesNothing: settings of a mixture of depths that work, but route nothing,
// are said.
func TestModThatRoutesNothing(t *testing.T) {
	for sets, want := range map[string]string{
		"":                                      "",
		"model.blocks=1":                        "mod in dynamic.kind has no effect: model.blocks = 1 has no second block",
		"mod.threshold=1":                       `mod.threshold = 1.0 has no effect while mod.route = "topk"`,
		"mod.route=predictor mod.threshold=0.2": "",
		"mod.route=predictor mod.threshold=1":   "mod.threshold = 1 lets no token into the routed blocks: no probability is above 1",
		"mod.route=predictor mod.threshold=0":   "mod.threshold = 0 lets every token into the routed blocks: a probability is above 0",
		"dynamic.kind=none mod.capacity=0.5":    `mod.capacity = 0.5 has no effect while dynamic.kind = "none"`,
		"dynamic.kind=prune+mod prune.start=1":  "",
		"dynamic.kind=mod+freeze freeze.when=step freeze.step=10":  "",
		"dynamic.kind=mod+freeze freeze.when=step freeze.step=100": "freeze in dynamic.kind has no effect: freeze.step = 100 is not below train.steps = 100",
	} {
		c, err := load("", []byte("[dynamic]\nkind = \"mod\"\n"), strings.Fields(sets))
		if err != nil {
			t.Errorf("%s: %v", sets, err)
			continue
		}
		if got := strings.Join(c.Ignored(), "; "); got != want {
			t.Errorf("%s: %q, want %q", sets, got, want)
		}
	}
}

// TestAttentionInBucketsKeepsAllTokens: sparse attention is refused beside kinds that take
// tokens away.
func TestAttentionInBucketsKeepsAllTokens(t *testing.T) {
	for kind, refused := range map[string]bool{
		"attention+mod": true, "mod+attention": true, "attention+exit": true, "prune+attention+mod": true,
		"exit+mod": false, "prune+mod": false, "attention+prune": false,
	} {
		if got := (Dynamic{Kind: kind}).clashes(); got != refused {
			t.Errorf("%s: refused %v, want %v", kind, got, refused)
		}
	}
}
