package cost

import (
	"cmp"
	"slices"
)

// Measurement is the measured cost of layers in a step.
type Measurement struct {
	Table             // medians over the step's microbatches, the largest of the replicas
	Samples [][]Stage // by layer and microbatch of a replica: the largest of the replicas; nil if the step was not sampled
	// Work is, by layer and microbatch of a replica, the share of the full microbatch's tokens
	// that the layer worked on. The largest of the replicas counts. nil, or nil for a layer,
	// means all tokens.
	Work   [][]float64
	Fixed  []float64  // by layer: the share of the seconds of a pass on a full microbatch that does not depend on the number of tokens; nil if Work is nil
	Counts []CountSum // counts of layers, ascending by layer and name
}

// Count is numbers that a layer counted in one microbatch, for example tokens that left at an exit.
type Count struct {
	Name       string
	Layer      int
	Microbatch int // global
	Values     []int64
}

// CountSum is the sum of a layer's counts over microbatches.
type CountSum struct {
	Name         string
	Layer        int
	Microbatches int     // microbatches in which a value was not 0
	Values       []int64 // sums
	// Peaks is the sum over microbatches of the largest unnamed value, for example the tokens of
	// the fullest expert.
	Peaks int64
}

// AddCounts adds the sum of other microbatches to a list that is ascending by layer and name.
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
