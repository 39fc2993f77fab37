package mod

import (
	"slices"
	"strings"
	"testing"

	"dynmo/src/kind/moe"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
)

// TestGradientOfExpertsWithinDepths: gradients are right where tokens pass by experts.
func TestGradientOfExpertsWithinDepths(t *testing.T) {
	e := moe.Experts{Count: 3, Top: 2, Auxiliary: 0.3, Z: 0.2}
	c := modeltest.SmallLlama.With(e).With(Depths{Capacity: 0.5, Auxiliary: 0.3})
	ch := modeltest.New(t, c, tensor.F64)
	modeltest.Enlarge(ch.S)
	at := slices.IndexFunc(ch.S.Layers, func(l *model.Layer) bool { return l.Form == Routed })
	ch.Also = func() float64 {
		return ch.Weighted(moe.Counts, 0, 0, e.Auxiliary/1000, e.Z/1000) + model.KindOf[Depths](c).Auxiliary*readRouting(ch, at)[3]/1000
	}
	modeltest.CheckGradients(t, ch)
	if counts := ch.Read(at, moe.Counts); counts[0] != 6 {
		t.Errorf("experts of the routed block had %v tokens, want 6", counts[0])
	}
}

// TestGroupsAreTheBlockWithinDepths: losses and gradients are those of the same model whose blocks are
// whole.
func TestGroupsAreTheBlockWithinDepths(t *testing.T) {
	c := modeltest.SmallLlama.With(moe.Experts{Count: 4, Top: 2, Groups: 2, Auxiliary: 0.3, Z: 0.2}).With(Depths{Capacity: 0.5, Auxiliary: 0.3})
	groups := modeltest.New(t, c, tensor.F64)
	modeltest.Edit(&c, func(k *moe.Experts) { k.Groups = 0 })
	whole := modeltest.New(t, c, tensor.F64)
	modeltest.Enlarge(groups.S)
	modeltest.Enlarge(whole.S)
	modeltest.CheckWhole(t, groups, whole)
}

// TestRoutedBlocksStayWhole: a block that routes tokens is one layer, whatever the grain, and
// works on the tokens that it takes.
func TestRoutedBlocksStayWhole(t *testing.T) {
	c := modeltest.SmallLlama.With(moe.Experts{Count: 4, Top: 2, Groups: 2}).With(Depths{Capacity: 0.5})
	if got, want := strings.Join(c.Names(), " "), "embedding block.0.attention block.0.experts.0 block.0.experts.1 block.1 head"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	ch := modeltest.New(t, c, tensor.F64)
	modeltest.Enlarge(ch.S)
	ch.Loss()
	if got := ch.Batches[4].Worked(); got != 6 {
		t.Errorf("the routed block works on %d tokens, want 6", got)
	}
}

// TestGradientOfRoutedLlama: gradients are right where tokens pass by a block.
func TestGradientOfRoutedLlama(t *testing.T) {
	c := modeltest.SmallLlama.With(Depths{Capacity: 0.5, Auxiliary: 0.3})
	ch := modeltest.New(t, c, tensor.F64)
	modeltest.Enlarge(ch.S)
	checkGradientsOfRouting(t, ch, model.KindOf[Depths](c))
}
