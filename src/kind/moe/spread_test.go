package moe

import (
	"dynmo/src/expect"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
	"slices"
	"testing"
)

// TestSpreadExpertsAreShared: replicas together have the parameters of a model whose experts
// each has, by the same names, and with the same initial weights.
func TestSpreadExpertsAreShared(t *testing.T) {
	c := mixture(Experts{Count: 6, Top: 2})
	whole, names := modeltest.New(t, c, tensor.F32), map[string]bool{}
	spread := c
	spread.Spread = 3
	if a, b := spread.Parameters(), c.Parameters(); a != b || spread.Active() != c.Active() || spread.Flops() != c.Flops() {
		t.Errorf("%d parameters, %d active, want %d and %d", a, spread.Active(), b, c.Active())
	}
	for spread.Replica = range 3 {
		s, err := model.NewStage(spread, spread.All(), whole.X.Device, tensor.F32)
		expect.OK(t, err)
		for id, l := range s.Layers {
			if l.Own() != (l.Kind == model.Block) || l.Traits.Talks != l.Own() {
				t.Errorf("%s: own parameters %v, talks %v", l.Name, l.Own(), l.Traits.Talks)
			}
			for _, p := range l.Params() {
				there := whole.S.Layers[id].Param(p.Weight)
				if there == nil || !modeltest.SameValues(there.W, p.W, tensor.F32) {
					t.Errorf("replica %d: %s is not as where each replica has all", spread.Replica, p.Weight)
				}
				if p.Own && names[p.Weight] {
					t.Errorf("replica %d: another has %s too", spread.Replica, p.Weight)
				}
				names[p.Weight] = true
			}
		}
		s.Free()
	}
	if len(names) != len(c.Owners()) {
		t.Errorf("%d weights, want %d", len(names), len(c.Owners()))
	}
}

// TestRowsOfSpreadExperts: experts have room for the most rows that replicas can send.
func TestRowsOfSpreadExperts(t *testing.T) {
	for _, v := range []struct {
		e            divided
		rows, atOnce int
	}{
		{divided{Experts{Count: 8, Top: 2}, 0}, 20, 20},                // of 10 tokens, each replica's own
		{divided{Experts{Count: 8, Top: 2}, 2}, 40, 20},                // both choices of all
		{divided{Experts{Count: 8, Top: 4}, 4}, 80, 40},                // two experts here
		{divided{Experts{Count: 8, Top: 4, Capacity: 1}, 2}, 40, 10},   // 5 of each replica for each of four
		{divided{Experts{Count: 8, Top: 4, Capacity: 0.5}, 8}, 24, 24}, // 3 of each of eight for one
	} {
		if rows, atOnce := v.e.rows(10), v.e.rowsAtOnce(10); rows != v.rows || atOnce != v.atOnce {
			t.Errorf("%+v: %d rows, at once %d, want %d and %d", v.e, rows, atOnce, v.rows, v.atOnce)
		}
	}
}

// TestWeightsOfSpreadExperts: the model's list of weights has those of all replicas.
func TestWeightsOfSpreadExperts(t *testing.T) {
	c := mixture(Experts{Count: 6, Top: 2})
	spread := c
	spread.Spread = 2
	same := func(a, b model.Weight) bool { return a.Name == b.Name && slices.Equal(a.Shape, b.Shape) }
	if !slices.EqualFunc(spread.Weights(), c.Weights(), same) {
		t.Error("other weights than where each replica has all")
	}
}
