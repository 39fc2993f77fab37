package pipeline

import (
	"math"
	"slices"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// TestChain: the numbers that stages send are added in the order of layers and microbatches,
// wherever layers lie. That holds also where several layers yield a loss and replicas have
// gradients of their own.
func TestChain(t *testing.T) {
	shared, own := []float64{1e16, 1, -1e16, 1}, []float64{3, 1e17, -1e17, 4} // sums depend on the order
	losses := map[int][]float64{1: {10, 11}, 3: {30, 31}}
	for _, owners := range []partition.Owners{{0, 0, 0, 0}, {0, 1, 0, 1}, {1, 0, 0, 1}, {2, 1, 1, 0}} {
		r := Runner{owners: owners, lossLayers: []int{1, 3}, schedule: schedule.Schedule{Microbatches: 2}}
		stages := make([][]byte, slices.Max(owners)+1)
		for stage := range stages {
			v, after := []float64{float64(stage % 2)}, []float64(nil)
			for _, l := range owners.Layers(stage) {
				v, after = append(v, shared[l], own[l]), append(after, losses[l]...)
			}
			stages[stage] = comm.Pack(append(v, after...))
		}
		norm, replica := r.chain(stages)
		want := []float64{min(1, float64(len(stages)-1)), 3 + 1e17 - 1e17 + 4, 10, 30, 11, 31}
		want[1] = ((own[0] + own[1]) + own[2]) + own[3]
		if norm != ((shared[0]+shared[1])+shared[2])+shared[3] || !slices.Equal(replica, want) {
			t.Errorf("%v: %v and %v, want %v", owners, norm, replica, want)
		}
	}
}

// TestCounts: counts of a step are what forwards left, and take no new memory.
func TestCounts(t *testing.T) {
	r, values := Runner{}, []float64{1, 2, 3, 4}
	for m := range 2 {
		r.counts = append(r.counts, cost.Count{Name: "experts", Layer: 5, Microbatch: m, Values: make([]int64, 2)})
	}
	r.chunks = []*chunk{{readings: []reading{{host: tensor.From([]float64{9, 9})}, {host: tensor.From(values), counts: slices.Clone(r.counts)}}}}
	if n := testing.AllocsPerRun(3, r.count); n > 0 || !slices.Equal(r.counts[0].Values, []int64{1, 2}) || !slices.Equal(r.counts[1].Values, []int64{3, 4}) {
		t.Errorf("%v allocations, counts %+v", n, r.counts)
	}
}

// TestWhole: a count of what is not finite is 0 on every processor.
func TestWhole(t *testing.T) {
	for x, want := range map[float64]int64{
		0: 0, 3.9: 3, -2.5: -2, 1e15: 1e15, math.NaN(): 0, math.Inf(1): 0, math.Inf(-1): 0, 1e300: 0, -1e19: 0,
	} {
		if got := whole(x); got != want {
			t.Errorf("%v is %d, want %d", x, got, want)
		}
	}
}
