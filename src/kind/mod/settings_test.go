package mod

import (
	"strings"
	"testing"

	"dynmo/src/config"
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
		c, err := config.Load("", append([]string{"dynamic.kind=mod"}, strings.Fields(sets)...))
		if err != nil {
			t.Errorf("%s: %v", sets, err)
			continue
		}
		if got := strings.Join(c.Ignored(), "; "); got != want {
			t.Errorf("%s: %q, want %q", sets, got, want)
		}
	}
}
