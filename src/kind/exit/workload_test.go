package exit

import (
	"math"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/dynamic/dynamictest"
)

// TestLeave: what leaves behind a layer is not there for later ones, and takes its part
// of the head's work with it.
func TestLeave(t *testing.T) {
	layer := func(name string, seconds float64) cost.Layer {
		return cost.Layer{Name: name, Forward: seconds, Output: 100, Bytes: cost.Bytes{Activations: 1000, Held: 10}}
	}
	chain := []cost.Layer{layer("embedding", 1), layer("block.0", 4), layer("block.1", 4), layer("head.0", 8), layer("head.1", 2)}
	got := leave(chain, []float64{0, 0.25, 0, 0, 0})
	for l, want := range []cost.Layer{
		{Name: "embedding", Forward: 1, Output: 100, Bytes: cost.Bytes{Activations: 1000, Held: 10}},
		{Name: "block.0", Forward: 4 + 2.5, Output: 75, Bytes: cost.Bytes{Activations: 1000 + 500, Held: 10 + 5}},
		{Name: "block.1", Forward: 3, Output: 75, Bytes: cost.Bytes{Activations: 750, Held: 8}},
		{Name: "head.0", Forward: 6, Output: 75, Bytes: cost.Bytes{Activations: 750, Held: 8}},
		{Name: "head.1", Forward: 1.5, Output: 75, Bytes: cost.Bytes{Activations: 750, Held: 8}},
	} {
		if got[l] != want {
			t.Errorf("%+v, want %+v", got[l], want)
		}
	}
}

// TestWorkloadAssumes: the workload goes by its fields, not by the defaults.
func TestWorkloadAssumes(t *testing.T) {
	c := dynamictest.Chain(t, 8, dynamic.MadeUp{Steps: 100, Every: 1, Microbatches: 4, Attention: 1.0 / 7})
	if got := (workload{From: 0.5, Final: 0.25}).Costs(c, 99).Layers; got[3].Forward != 1 || math.Abs(got[8].Forward-0.75) > 1e-12 {
		t.Errorf("%v of the tokens reach block 2 and %v the last, want 1 and 0.75", got[3].Forward, got[8].Forward)
	}
}
