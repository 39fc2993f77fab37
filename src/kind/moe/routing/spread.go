package routing

import (
	"slices"
)

// Placement is which rank each expert of a block lies on.
type Placement []int

// Contiguous places the first experts on the first rank, and so on, as parallel.experts =
// "spread" does; ranks divides the experts.
func Contiguous(experts, ranks int) Placement {
	p := make(Placement, experts)
	for e := range p {
		p[e] = e * ranks / experts
	}
	return p
}

// Fullest returns the load of the fullest rank over the mean one, 1 if there is no load.
func (p Placement) Fullest(loads []uint16, ranks int) float64 {
	sums, all := make([]float64, ranks), 0.0
	for e, n := range loads {
		sums[p[e]] += float64(n)
		all += float64(n)
	}
	if all == 0 {
		return 1
	}
	return slices.Max(sums) * float64(ranks) / all
}
