package kind

import (
	"math"
	"testing"

	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/dynamic/dynamictest"
)

// TestWorkloadsAssume: workloads go by what settings assume.
func TestWorkloadsAssume(t *testing.T) {
	c := dynamictest.Chain(t, 8, dynamic.MadeUp{Steps: 100, Every: 1, Microbatches: 4, Attention: 1.0 / 7})
	assumed := config.Default()
	assumed.Assign("simulate.mod_tokens", 0.5, "simulate.mod_noise", 0, "simulate.density_least", 0.5, "simulate.density_most", 0.5, "simulate.density_noise", 0)
	for _, w := range dynamic.Workloads() {
		got, want := 0.0, 0.0
		switch costs := w.Of(assumed).Costs(c, 5); w.Name {
		case "mod":
			got, want = costs.Scale[2][3], 0.5
		case "attention":
			got, want = costs.Layers[3].Forward, 1-0.5/7
		}
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: %v, want %v", w.Name, got, want)
		}
	}
}
