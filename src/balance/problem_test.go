package balance

import (
	"slices"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/partition"
)

func TestNew(t *testing.T) {
	table := cost.Table{
		Layers: []cost.Layer{
			{Name: "embedding", Forward: 1, BackwardWeight: 2, NonZeros: 100,
				Bytes: cost.Bytes{Parameters: 400, Gradients: 400, Optimizer: 800, Activations: 64, Held: 16}},
			{Name: "head", Forward: 1, BackwardInput: 3, BackwardWeight: 3, NonZeros: 300,
				Bytes: cost.Bytes{Parameters: 1200, Gradients: 1200, Optimizer: 2400, Activations: 32}},
		},
		Slow: []float64{1, 2}, Fixed: []float64{0.5, 0.25},
	}
	p := New(table, ByTime, 2, []int{2, 1}, 5000)
	got, err := p.Evaluate(partition.Partition{0, 1, 2})
	expect.OK(t, err)
	if !slices.Equal(got.StageSeconds, []float64{1*3 + 0.5, 2*7 + 0.25}) {
		t.Errorf("stage seconds %v", got.StageSeconds)
	}
	c, err := newChain(p)
	expect.OK(t, err)
	if got := c.bytes(0, 0, 1); got != 1600+2*64+16 {
		t.Errorf("stage 0 holds %d bytes, want 1744", got)
	}
	c.Between = []int{3, 1}
	if got := c.bytes(0, 0, 1); got != 1600+2*64+3*16 {
		t.Errorf("with three microbatches between their backwards: stage 0 holds %d bytes, want 1776", got)
	}
	if got := c.moveBytes(); !slices.Equal(got, []int64{0, 1200, 4800}) { // gradients stay behind
		t.Errorf("bytes that travel, summed: %v, want 0, 1200, 4800", got)
	}

	p = New(table, ByParam, 2, nil, 0)
	got, err = p.Evaluate(partition.Partition{0, 1, 2})
	if err != nil || !slices.Equal(got.StageSeconds, []float64{100, 300}) || p.Capacity != nil {
		t.Errorf("by parameters: %v, capacity %v (%v), want 100, 300 and no limit", got.StageSeconds, p.Capacity, err)
	}
	if _, err := Partition(New(table, ByTime, 3, nil, 0)); err == nil {
		t.Error("more stages than layers are accepted")
	}
}

// TestLowerBound covers every cause of a large bottleneck. The comparison with brute force checks
// that no partition is below the bound.
func TestLowerBound(t *testing.T) {
	for _, tc := range []struct {
		name string
		p    Problem
		want float64
	}{
		{"mean", Problem{Seconds: []float64{1, 2, 3}, Stages: 2}, 3},
		{"longest layer", Problem{Seconds: []float64{1, 9, 2}, Stages: 3}, 9},
		{"fixed seconds", Problem{Seconds: []float64{1, 1}, Stages: 2, Fixed: []float64{7, 0}}, 7},
		{"speeds", Problem{Seconds: []float64{1, 1, 1, 1, 1, 1}, Stages: 2, Slow: []float64{1, 2}}, 4},
		{"speeds and fixed seconds", Problem{Seconds: []float64{1, 1, 1, 1, 1, 1}, Stages: 2, Slow: []float64{1, 2}, Fixed: []float64{0, 6}}, 6},
	} {
		c, err := newChain(tc.p)
		expect.OK(t, err)
		if got := c.lowerBound(); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
