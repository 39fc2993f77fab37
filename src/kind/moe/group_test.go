package moe

import (
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
	"math"
	"slices"
	"strings"
	"testing"
)

// TestGradientOfExpertGroups compares every gradient with the central difference of the loss
// and the routers' own.
func TestGradientOfExpertGroups(t *testing.T) {
	for name, e := range map[string]Experts{
		"2 groups of 2":    {Count: 4, Top: 2, Groups: 2, Auxiliary: 0.3, Z: 0.2},
		"3 groups of 1":    {Count: 3, Top: 2, Groups: 3, Auxiliary: 0.1},
		"squashed":         {Count: 4, Top: 2, Groups: 2, Z: 0.2, Scale: 2, Squashed: true},
		"capacity":         {Count: 4, Top: 2, Groups: 2, Auxiliary: 0.2, Z: 0.1, Capacity: 0.6},
		"s-base, capacity": {Count: 4, Top: 2, Groups: 4, Balanced: true, Deviation: 8, Rounds: 16, Z: 0.1, Capacity: 0.8},
		"empty groups":     {Count: 6, Top: 1, Groups: 3, Auxiliary: 0.3},
	} {
		t.Run(name, func(t *testing.T) {
			ch := modeltest.New(t, mixture(e), tensor.F64)
			modeltest.Enlarge(ch.S)
			if e.Groups > 2 {
				modeltest.Thin(t, ch.S, model.CSR)
				ch.Some(4, 1, 3)
			}
			ch.Also = func() float64 { return routersLoss(ch) }
			modeltest.CheckGradients(t, ch)
		})
	}
}

// grouped returns a small LLaMA with groups of experts in which something else changes too.
func grouped(change func(c *model.Config)) model.Config {
	c := mixture(Experts{Count: 4, Top: 2, Groups: 2, Auxiliary: 0.3, Z: 0.2})
	change(&c)
	return c
}

// TestExpertGroupsAreTheBlock: losses, readings and gradients equal those of the same model with
// whole blocks. That holds also where tokens leave in front of experts or pass by them.
func TestExpertGroupsAreTheBlock(t *testing.T) {
	for name, c := range map[string]model.Config{
		"plain":    grouped(func(*model.Config) {}),
		"one each": grouped(func(c *model.Config) { modeltest.Edit(c, func(k *Experts) { k.Groups = 4 }) }),
		"squashed": grouped(func(c *model.Config) { modeltest.Edit(c, func(k *Experts) { k.Squashed, k.Scale = true, 3 }) }),
		"s-base":   grouped(func(c *model.Config) { modeltest.Edit(c, func(k *Experts) { k.Balanced = true }) }),
		"capacity": grouped(func(c *model.Config) { modeltest.Edit(c, func(k *Experts) { k.Capacity = 0.7 }) }),
	} {
		t.Run(name, func(t *testing.T) {
			groups := modeltest.New(t, c, tensor.F64)
			modeltest.Edit(&c, func(k *Experts) { k.Groups = 0 })
			whole := modeltest.New(t, c, tensor.F64)
			modeltest.Enlarge(groups.S)
			modeltest.Enlarge(whole.S)
			modeltest.CheckWhole(t, groups, whole)
			counts := [2][]float64{}
			for i, ch := range []*modeltest.Chain{groups, whole} {
				for id := range ch.S.Layers {
					counts[i] = append(counts[i], ch.Read(id, Counts)...)
				}
			}
			for k, x := range counts[1] {
				if math.Abs(counts[0][k]-x) > 1e-8 {
					t.Fatalf("counts %v, of whole blocks %v", counts[0], counts[1])
				}
			}
		})
	}
}

// TestChainOfExpertGroups: groups have the block's weights under their names, and routed blocks
// stay whole. The bytes that layers announce are the bytes that they take.
func TestChainOfExpertGroups(t *testing.T) {
	c := grouped(func(*model.Config) {})
	if got, want := strings.Join(c.Names(), " "), "embedding block.0.attention block.0.experts.0 block.0.experts.1 block.1.attention block.1.experts.0 block.1.experts.1 head"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	whole := c
	modeltest.Edit(&whole, func(k *Experts) { k.Groups = 0 })
	there := whole.Owners()
	for weight := range c.Owners() {
		if there[weight] == nil {
			t.Errorf("%s is in no whole block", weight)
		}
	}
	if c.Parameters() != whole.Parameters() || c.Flops() != whole.Flops() {
		t.Errorf("%d parameters, %v operations; of whole blocks %d and %v", c.Parameters(), c.Flops(), whole.Parameters(), whole.Flops())
	}
	ch := modeltest.New(t, grouped(func(*model.Config) {}), tensor.F32)
	ch.CheckBytes(t)
}

// TestNoTokenAtExpertGroups: a microbatch without tokens passes through.
func TestNoTokenAtExpertGroups(t *testing.T) {
	ch := modeltest.New(t, grouped(func(c *model.Config) { *c = c.With(&modeltest.Selecting{Rows: map[int][]int32{0: {}}}) }), tensor.F64)
	ch.Gradients()
	if counts := ch.Read(2, Counts); slices.Max(counts) != 0 {
		t.Errorf("counts %v of no tokens", counts)
	}
}

// TestWorkOfExpertGroups: all groups of a block together work on as many tokens as there
// are, a whole block on all.
func TestWorkOfExpertGroups(t *testing.T) {
	ch := modeltest.New(t, grouped(func(*model.Config) {}), tensor.F64)
	modeltest.Enlarge(ch.S)
	ch.Loss()
	counts := ch.Read(2, Counts)[countsFrom:]
	for k, layer := range []int{2, 3} {
		rows := tensor.Of[int32](ch.S.Layers[layer].Reading(ch.X, ch.Batches[layer], ch.Saved[layer], 0))[0]
		if got, want := model.KindOf[Experts](ch.S.Config).share(int(rows)), int(counts[2*k]+counts[2*k+1]); got != want { // 2 groups, top 2
			t.Errorf("group %d works on %d tokens, want %d", k, got, want)
		}
	}
}
