package sample

import (
	"slices"
	"strings"
	"testing"

	"dynmo/src/kind/mod"
	"dynmo/src/tensor"
)

// TestDepthsWithoutAPredictor: a block takes the tokens with a router's logit above 0. With the
// test's biases these are all tokens or none. The results are those of a capacity of 1, and of a
// model without the block.
func TestDepthsWithoutAPredictor(t *testing.T) {
	tokens := []int32{3, 1, 4, 1, 5, 9}
	r := newTrainer(t, tiny.With(mod.Depths{Capacity: 1}))
	bias := tensor.Of[float32](r.s.Layers[2].Param("block.1/depths.router.bias").W)
	logits := func() []float64 {
		return logSoftmax(fed(t, r.sampler(t, 1, nil).NewSession(len(tokens), nil), tokens...))
	}
	bias[0] = 1000
	all := r.logProbabilities(t, tokens)
	same(t, "all", logits(), all[len(tokens)-1])
	bias[0] = -1000
	none := logits()
	for _, p := range r.s.Layers[2].Params() {
		if p.Name == "proj.weight" || p.Name == "proj.bias" || p.Name == "down.weight" || p.Name == "down.bias" {
			clear(tensor.Of[float32](p.W))
		}
	}
	idle := r.logProbabilities(t, tokens)
	same(t, "none", none, idle[len(tokens)-1])
	for auxiliary, want := range map[float64]string{0: "has not taught", 0.1: "as mod.auxiliary taught"} {
		notes := Notes(tiny.With(mod.Depths{Capacity: 0.5, Auxiliary: auxiliary}))
		if !slices.ContainsFunc(notes, func(note string) bool { return strings.Contains(note, want) }) {
			t.Errorf("notes %q, want %q", notes, want)
		}
	}
}
