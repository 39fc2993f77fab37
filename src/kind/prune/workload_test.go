package prune

import (
	"math"
	"testing"

	"dynmo/src/dynamic"
	"dynmo/src/dynamic/dynamictest"
)

// TestWorkloadIsPruning: at every pruning of a schedule that is not the
// default, what is left is what training would leave, and it stays to the end.
func TestWorkloadIsPruning(t *testing.T) {
	c := dynamictest.Chain(t, 6, dynamic.MadeUp{Steps: 100, Start: 10, Every: 20, Attention: 1.0 / 7})
	p := pruning{Start: 10, Every: 20, Times: 3, Initial: 0.1, Final: 0.6, CSRFrom: 0.5}
	w := workload{p}
	for _, step := range []int{10, 30, 50, 70, 90} {
		want, due := p.Sparsity(step)
		if !due {
			want = p.Final
		}
		left := 0.0
		for _, l := range w.Costs(c, step).Layers[1:7] {
			left += float64(l.NonZeros) / 6e6
		}
		if math.Abs(1-left-want) > 1e-6 { // numbers of weights are whole
			t.Errorf("step %d: sparsity %v, want %v", step, 1-left, want)
		}
	}
}
