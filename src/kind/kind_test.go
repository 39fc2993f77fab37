package kind_test

import (
	"dynmo/src/kind/attention"
	"dynmo/src/kind/exit"
	"dynmo/src/kind/mod"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
	"slices"
	"testing"
)

// TestLlamaWithDynamism: three dynamic models equal the plain one, bit for bit. Exits keep all
// tokens, or routed blocks take all through an open gate, or attention has one bucket.
func TestLlamaWithDynamism(t *testing.T) {
	all := modeltest.SmallLlama
	all.KeyValueHeads = all.Heads
	dense := modeltest.New(t, all, tensor.F32)
	dense.Gradients()
	for name, change := range map[string]func(*model.Config){
		"exit":       func(c *model.Config) { *c = c.With(exit.Exits{After: "1", Confidence: "classifier", Threshold: 1}) },
		"saturation": func(c *model.Config) { *c = c.With(exit.Exits{After: "1", Confidence: "saturation", Threshold: 1}) },
		"propagation": func(c *model.Config) {
			*c = c.With(exit.Exits{After: "1", Confidence: "softmax", Threshold: 1, Propagate: true})
		},
		"mod":       func(c *model.Config) { *c = c.With(mod.Depths{Capacity: 1, One: true}) },
		"attention": func(c *model.Config) { *c = c.With(attention.Buckets{Count: 1}) },
	} {
		c := all
		change(&c)
		ch := modeltest.New(t, c, tensor.F32)
		ch.Gradients()
		if x, y := ch.Loss(), dense.Loss(); x != y {
			t.Errorf("%s: loss %v, plain %v", name, x, y)
		}
		for _, l := range dense.S.Layers {
			for _, p := range l.Params() {
				at := slices.IndexFunc(ch.S.Layers, func(other *model.Layer) bool { return other.Name == l.Name })
				if got := ch.S.Layers[at].Param(p.Weight); !modeltest.SameValues(got.G, p.G, tensor.F32) {
					t.Errorf("%s: %s has another gradient", name, p.Weight)
				}
			}
		}
	}
}
