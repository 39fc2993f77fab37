package cost

import (
	"cmp"
	"slices"
)

// Measurement is what a step showed of the layers.
type Measurement struct {
	Table             // medians over the step's microbatches, the largest of the replicas
	Samples [][]Stage // by layer and microbatch of a replica: the largest of the replicas; nil if the step was not sampled
	// Work is, by layer and microbatch of a replica, the share of the full microbatch's tokens
	// that the layer worked on. The largest of the replicas counts. nil, or nil for a layer,
	// means all tokens.
	Work   [][]float64
	Fixed  []float64  // by layer: of its passes on a full microbatch the share of the seconds that passes on few tokens take too; nil where Work is
	Counts []CountSum // what layers counted, ascending by layer and name
}

// Count is numbers that a layer counted in one microbatch, as tokens that left at an exit.
type Count struct {
	Name       string
	Layer      int
	Microbatch int // global
	Values     []int64
}

// CountSum is the sum of what a layer counted in microbatches.
type CountSum struct {
	Name         string
	Layer        int
	Microbatches int     // in which any value was not 0
	Values       []int64 // sums
	// Peaks is the sum over microbatches of the largest value without a name: of the tokens
	// of the fullest expert.
	Peaks int64
}

// AddCounts adds the sum of other microbatches to those of a list, ascending by layer and name.
func AddCounts(list []CountSum, other CountSum) []CountSum {
	at, found := slices.BinarySearchFunc(list, other, func(a, b CountSum) int {
		return cmp.Or(cmp.Compare(a.Layer, b.Layer), cmp.Compare(a.Name, b.Name))
	})
	if !found {
		other.Values = slices.Clone(other.Values)
		return slices.Insert(list, at, other)
	}
	c := &list[at]
	c.Microbatches, c.Peaks = c.Microbatches+other.Microbatches, c.Peaks+other.Peaks
	for i, v := range other.Values {
		c.Values[i] += v
	}
	return list
}
