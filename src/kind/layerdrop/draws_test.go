package layerdrop

import (
	"math"
	"testing"

	"dynmo/src/dynamic"
	"dynmo/src/expect"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
)

// TestShares: in the first step every block is kept; in the end the last block in Theta of the
// steps, and those before it in proportion (Zhang & He 2020, section 4.1).
func TestShares(t *testing.T) {
	s := schedule{options{Theta: 0.5, Gamma: 0.001}, 12}
	for _, c := range []struct {
		step, block int
		want        float64
	}{
		{0, 0, 1}, {0, 11, 1}, {1000, 11, 0.5 + 0.5/math.E}, {1e6, 11, 0.5}, {1e6, 5, 0.75}, {1e6, 0, 1 - 0.5/12},
	} {
		if got := s.share(c.step, c.block); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("step %d, block %d: kept in %v of the steps, want %v", c.step, c.block, got, c.want)
		}
	}
}

// TestDraws: halves of a block agree, and so do two stages with the same block. A step drawn again
// is the same. Over many steps a block is kept as often as its share says.
func TestDraws(t *testing.T) {
	c := modeltest.Small.With(blockGates{})
	c.HalfGrain = true
	a, b := modeltest.New(t, c, tensor.F32), modeltest.New(t, c, tensor.F32)
	kept := make(map[int]int)
	const steps = 4000
	for step := range steps {
		for _, ch := range []*modeltest.Chain{a, b} {
			d := &draws{schedule: schedule{options{Theta: 0.4, Gamma: 10}, c.Blocks}, seed: 3}
			_, err := d.Before(step+100, dynamic.Target{Stage: ch.S})
			expect.OK(t, err)
		}
		at := make(map[int]float64)
		for i, l := range a.S.Layers {
			mine, tuned := l.Tuning()
			if !tuned {
				continue
			}
			if other, _ := b.S.Layers[i].Tuning(); other != mine {
				t.Fatalf("step %d: %s has gates %v and %v", step, l.Name, mine, other)
			}
			if first, seen := at[l.Block]; seen && first != mine {
				t.Fatalf("step %d: halves of block %d have gates %v and %v", step, l.Block, first, mine)
			}
			at[l.Block] = mine
		}
		for block, gate := range at {
			if gate > 0 {
				kept[block]++
			}
		}
	}
	for block, want := range []float64{0.7, 0.4} {
		if got := float64(kept[block]) / steps; math.Abs(got-want) > 4*math.Sqrt(want*(1-want)/steps) {
			t.Errorf("block %d is kept in %v of the steps, want %v", block, got, want)
		}
	}
	if _, tuned := a.S.Layers[0].Tuning(); tuned || a.S.Layers[0].Kind != model.Embedding {
		t.Error("the embedding has a gate")
	}
}

// TestChangesAreFew: a change is reported once θ has fallen noticeably, not at every step of a slow fall.
func TestChangesAreFew(t *testing.T) {
	chain := modeltest.New(t, modeltest.Small.With(blockGates{}), tensor.F32)
	d := &draws{schedule: schedule{options{Theta: 0.5, Gamma: 0.001}, modeltest.Small.Blocks}, seed: 3}
	last, count := 1.0, 0
	for step := range 5000 {
		change, err := d.Before(step, dynamic.Target{Stage: chain.S})
		expect.OK(t, err)
		if change.Kind == "" {
			continue
		}
		theta := change.Detail["theta"]
		if count++; last-theta < leastFall {
			t.Errorf("step %d: a fall from %v to %v is reported", step, last, theta)
		}
		if last = theta; count == 1 && step < 100 {
			t.Errorf("the first change is reported before step %d, at θ = %v", step, theta)
		}
	}
	if count != 9 { // θ falls from 1 to 0.5, and a step goes past each multiple of 0.05
		t.Errorf("%d changes, want 9", count)
	}
}
