package layouts

import (
	"math"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// chainOf returns layers with these seconds of forward; backward takes `back` times as long.
func chainOf(back float64, forward ...float64) []cost.Layer {
	var list []cost.Layer
	for _, f := range forward {
		list = append(list, cost.Layer{Forward: f, BackwardInput: back * f / 2, BackwardWeight: back * f / 2})
	}
	return list
}

func repeat(n int, x float64) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = x
	}
	return list
}

func cutsOf(counts ...int) partition.Partition {
	cuts := partition.Partition{0}
	for _, n := range counts {
		cuts = append(cuts, cuts[len(cuts)-1]+n)
	}
	return cuts
}

func everywhere(layers []cost.Layer) []bool {
	list := make([]bool, len(layers))
	for l := range list {
		list[l] = true
	}
	return list
}

func TestWorkedExamples(t *testing.T) {
	layers := chainOf(2, append(append([]float64{0.0005}, repeat(32, 0.010)...), 0.014)...)
	layers[0] = cost.Layer{Forward: 0.0005, BackwardInput: 0.0005}
	megatron := Problem{Layers: layers, CanCut: everywhere(layers), Stages: 4, Chunks: 1, Microbatches: 16, Schedule: schedule.Kind1F1B, Empty: true}
	few := megatron
	few.Microbatches = 4
	titan := Problem{
		Layers: chainOf(2, append(append([]float64{0.02 / 3}, repeat(32, 1.0/3)...), 2.24/3)...),
		Stages: 4, Chunks: 2, Microbatches: 16, Schedule: schedule.KindInterleaved,
	}
	titan.CanCut = everywhere(titan.Layers)
	gemma := chainOf(2, append(append([]float64{0.001}, repeat(42, 0.010)...), 0.00001, 0.0427)...)
	deepspeed := Problem{Layers: gemma, CanCut: everywhere(gemma), Stages: 8, Chunks: 1, Microbatches: 32, Schedule: schedule.Kind1F1B}
	for _, c := range []struct {
		name    string
		p       Problem
		present partition.Partition
		now     float64 // seconds of the present layout
		most    float64 // seconds of the best
		proven  bool
	}{
		{"Megatron", megatron, cutsOf(9, 8, 8, 9), 5.233, 4.987, true},
		{"Megatron, 4 microbatches", few, cutsOf(9, 9, 8, 8), 1.765, 1.684, true},
		{"torchtitan", titan, cutsOf(5, 5, 4, 4, 4, 4, 4, 4), 163.86, 150.99, false},
		{"DeepSpeed", deepspeed, partition.Partition{0, 6, 12, 18, 24, 30, 36, 42, 45}, 0, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := newSolver(c.p)
			if err != nil {
				t.Fatal(err)
			}
			units, _ := v.unitsOf(c.present)
			now := v.evaluate(units)
			if c.now == 0 {
				c.now, c.most = now, now
			}
			found, err := findBest(budget, c.p, c.present)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("now %.4f, best %.4f, %v, proven %v", now, found.Best[0].Seconds, found.Best[0].Cuts, found.Proven)
			if math.Abs(now-c.now) > 0.0005*c.now || found.Best[0].Seconds > c.most*1.0001 || found.Proven != c.proven {
				t.Errorf("now %v, want %v; best %v, want %v; proven %v", now, c.now, found.Best[0].Seconds, c.most, found.Proven)
			}
		})
	}
}
