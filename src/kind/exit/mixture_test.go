package exit

import (
	"testing"

	"dynmo/src/kind/moe"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
)

// TestGradientOfExpertsBehindExits: gradients are right where tokens leave in front of
// experts, or go on as they are.
func TestGradientOfExpertsBehindExits(t *testing.T) {
	e := moe.Experts{Count: 3, Top: 2, Auxiliary: 0.3, Z: 0.2}
	leaving := modeltest.SmallLlama.With(e).With(Exits{After: "1", Confidence: "softmax", Threshold: 0.3, Probe: 0.5, Weight: 0.7})
	going := leaving
	going.KeyValueHeads, going.Tied = going.Heads, true
	modeltest.Edit(&going, func(k *Exits) { k.Propagate = true })
	saturated := going
	modeltest.Edit(&saturated, func(k *Exits) { k.Confidence = saturation })
	for name, c := range map[string]model.Config{"exit": leaving, "propagation": going, "saturation": saturated} {
		t.Run(name, func(t *testing.T) {
			ch := newChain(t, c, tensor.F64)
			modeltest.Enlarge(ch.S)
			leaveBy(ch, 4)
			ch.Also = func() float64 { return ch.Weighted(moe.Counts, 0, 0, e.Auxiliary/1000, e.Z/1000) }
			modeltest.CheckGradients(t, ch)
		})
	}
}

// grouped returns a small LLaMA with groups of experts and exits.
func grouped(all bool, e Exits) model.Config {
	c := modeltest.SmallLlama.With(moe.Experts{Count: 4, Top: 2, Groups: 2, Auxiliary: 0.3, Z: 0.2}).With(e)
	if all {
		c.KeyValueHeads, c.Tied = c.Heads, true
	}
	return c
}

// TestGroupsAreTheBlockBehindExits: losses and gradients are those of the same model whose blocks are
// whole.
func TestGroupsAreTheBlockBehindExits(t *testing.T) {
	for name, c := range map[string]model.Config{
		"exit":        grouped(false, Exits{After: "1", Confidence: "softmax", Threshold: 0.3, Probe: 0.5, Weight: 0.7}),
		"propagation": grouped(true, Exits{After: "1", Confidence: "softmax", Threshold: 0.3, Probe: 0.5, Weight: 0.7, Propagate: true}),
		"saturation":  grouped(true, Exits{After: "1", Confidence: saturation, Threshold: 0.3, Weight: 0.7, Propagate: true}),
	} {
		t.Run(name, func(t *testing.T) {
			whole := c
			modeltest.Edit(&whole, func(k *moe.Experts) { k.Groups = 0 })
			chains := []*modeltest.Chain{newChain(t, c, tensor.F64), newChain(t, whole, tensor.F64)}
			for _, ch := range chains {
				modeltest.Enlarge(ch.S)
				leaveBy(ch, 4)
			}
			modeltest.CheckWhole(t, chains[0], chains[1])
		})
	}
}

// TestGradientOfLlamaBehindExits: gradients are right where tokens leave and go on as
// they are.
func TestGradientOfLlamaBehindExits(t *testing.T) {
	grouped := modeltest.SmallLlama.With(Exits{After: "1", Confidence: "softmax", Threshold: 0.3, Probe: 0.5, Weight: 0.7})
	all := grouped
	all.KeyValueHeads, all.Tied = all.Heads, true
	modeltest.Edit(&all, func(k *Exits) { k.Propagate = true })
	for name, c := range map[string]model.Config{"exit": grouped, "propagation": all} {
		t.Run(name, func(t *testing.T) {
			ch := newChain(t, c, tensor.F64)
			modeltest.Enlarge(ch.S)
			leaveBy(ch, 4)
			modeltest.CheckGradients(t, ch)
			if left := ch.Work[exits(ch)[0]].(*departure).left; left != 4 {
				t.Errorf("%d tokens left, want 4", left)
			}
		})
	}
}
