package routing

import (
	"cmp"
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

// Placed returns a placement of experts by their loads: each, the fullest first, goes to
// the emptiest rank that has room for it (Graham 1969), then pairs of ranks exchange two
// experts, or where there is room one moves, as long as the fuller of the two gets
// emptier. most is how many experts a rank may have.
func Placed(loads []float64, ranks, most int) Placement {
	order, p := make([]int, len(loads)), make(Placement, len(loads))
	for e := range order {
		order[e] = e
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(loads[b], loads[a]) })
	s := shelves{p: p, loads: loads, sums: make([]float64, ranks), counts: make([]int, ranks), most: most}
	for _, e := range order {
		at := -1
		for r, n := range s.counts {
			if n < most && (at < 0 || s.sums[r] < s.sums[at]) {
				at = r
			}
		}
		p[e] = at
		s.sums[at] += loads[e]
		s.counts[at]++
	}
	for s.improve() {
	}
	return p
}

// shelves is a placement that is being made.
type shelves struct {
	p      Placement
	loads  []float64
	sums   []float64 // by rank
	counts []int     // by rank
	most   int
}

// improve makes the first exchange of the fullest rank's experts, or a move of one, that
// leaves both ranks emptier than it was, and reports whether there is any.
func (s *shelves) improve() bool {
	full := 0
	for r, sum := range s.sums {
		if sum > s.sums[full] {
			full = r
		}
	}
	for a, rank := range s.p {
		if rank != full {
			continue
		}
		for r := range s.sums {
			if r != full && s.counts[r] < s.most && s.sums[r]+s.loads[a] < s.sums[full]*(1-rounding) {
				s.move(a, r)
				return true
			}
		}
		for b, other := range s.p {
			gain := s.loads[a] - s.loads[b]
			if other != full && gain > rounding*s.sums[full] && s.sums[other]+gain < s.sums[full]*(1-rounding) {
				s.move(a, other)
				s.move(b, full)
				return true
			}
		}
	}
	return false
}

// rounding is the share of a load below which a gain may be none, so that exchanges end.
const rounding = 1e-9

func (s *shelves) move(expert, to int) {
	from := s.p[expert]
	s.p[expert] = to
	s.sums[from] -= s.loads[expert]
	s.sums[to] += s.loads[expert]
	s.counts[from]--
	s.counts[to]++
}
