package cost

import (
	"math"
	"slices"
	"testing"

	"dynmo/src/partition"
	"dynmo/src/random"
)

// TestRegroup: a microbatch of twice the samples takes the seconds and the memory of two, except
// for the parts that do not grow with samples. The way back gives the first costs.
func TestRegroup(t *testing.T) {
	layer := Layer{Name: "a", Forward: 1, BackwardInput: 2, BackwardWeight: 3, NonZeros: 7, Output: 10, Bytes: Bytes{Parameters: 5, Optimizer: 6, Workspace: 4, Activations: 100, Held: 20}}
	p := Phase{Table: Table{
		Layers: []Layer{layer, layer, layer}, Dispatch: 0.25, Fixed: []float64{0.5}, Slow: []float64{2},
		Scale: [][]float64{{1, 3, 0.5, 1.5}, nil, {2, 0}},
	}}
	larger := p.Regroup(4, 2)
	want := Layer{Name: "a", Forward: 2, BackwardInput: 4, BackwardWeight: 6, NonZeros: 7, Output: 20, Bytes: Bytes{Parameters: 5, Optimizer: 6, Workspace: 4, Activations: 200, Held: 40}}
	if got := larger.Layers[1]; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if larger.Dispatch != p.Dispatch || !slices.Equal(larger.Fixed, p.Fixed) || !slices.Equal(larger.Slow, p.Slow) {
		t.Errorf("%+v: what no sample accounts for has changed", larger.Table)
	}
	for l, want := range [][]float64{{2, 1}, nil, {1, 1}} {
		if !slices.Equal(larger.Scale[l], want) {
			t.Errorf("layer %d: scale %v, want %v", l, larger.Scale[l], want)
		}
	}
	if back := larger.Regroup(2, 4); back.Layers[0] != layer || !slices.Equal(back.Scale[0], []float64{2, 2, 1, 1}) {
		t.Errorf("back again: %+v", back.Table)
	}
	if same := p.Regroup(4, 4); !same.Table.Equal(p.Table) || p.Layers[0] != layer {
		t.Errorf("%+v of as many microbatches", same.Table)
	}
}

// TestRegroupKeepsTheStep: all microbatches of a step together take as long in any number.
func TestRegroupKeepsTheStep(t *testing.T) {
	p := Phase{Table: Table{Layers: []Layer{{Forward: 1}, {Forward: 2}}}, Factors: [][]Stage{{{1, 1, 1}, {2, 2, 2}, {4, 4, 4}}, nil}}
	total := func(p Phase, microbatches int) (sum float64) {
		for _, row := range p.PerMicrobatch(partition.Partition{0, 1, 2}, partition.Line(2), microbatches) {
			for _, s := range row {
				sum += s.Seconds()
			}
		}
		return sum
	}
	for _, to := range []int{1, 2, 3, 4, 6, 12, 24} {
		if got, want := total(p.Regroup(12, to), to), total(p, 12); math.Abs(got-want) > 1e-12 {
			t.Errorf("%d microbatches: %v seconds, want %v", to, got, want)
		}
	}
}

// TestMeanOfMean: the mean of a mean has the same bits, also of rows that are all the same.
func TestMeanOfMean(t *testing.T) {
	for seed := range uint64(100) {
		rnd := random.Keyed(seed)
		p := Phase{Table: Table{Layers: make([]Layer, 3), Scale: make([][]float64, 3)}}
		for l := range p.Layers {
			p.Layers[l] = p.Layers[l].WithSeconds(Stage{Forward: rnd.Float64(), Input: rnd.Float64(), Weight: rnd.Float64()})
			for range l * rnd.IntN(40) {
				p.Scale[l] = append(p.Scale[l], float64(rnd.IntN(3))/10)
			}
		}
		mean := p.Mean()
		if again := (Phase{Table: mean}).Mean(); !again.Equal(mean) {
			t.Fatalf("seed %d: the mean of %+v is %+v", seed, mean, again)
		}
	}
}
