package place

import (
	"cmp"
	"slices"

	"dynmo/src/piece"
)

// EPLB returns the map of DeepSeek's expert parallelism load balancer, its global policy
// (DeepSeek-AI 2025, section 3.4, and the description of EPLB). It fills all places. Each copy goes
// to the expert with the most load for each of its copies. Copies are packed with the largest load
// first, each on the replica with the least load that has a free place.
//
// Departs: no replica has two copies of an expert while others have a place, which makes it better.
// The first of the replicas of an expert counts as its owner.
func (p *Placer) EPLB(loads []float64) piece.Map {
	replicas, room := p.Replicas, p.Room
	m, n, each := make(piece.Map, len(loads)), slices.Repeat([]int{1}, len(loads)), slices.Clone(loads)
	for range replicas*room - len(loads) {
		best := -1
		for e, load := range each {
			if n[e] < replicas && (best < 0 || load > each[best]) {
				best = e
			}
		}
		if best < 0 {
			break
		}
		n[best]++
		each[best] = loads[best] / float64(n[best])
	}
	var order []int
	for e, copies := range n {
		for range copies {
			order = append(order, e)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(each[b], each[a]) })
	sums, held := make([]float64, replicas), make([]int, replicas)
	for _, e := range order {
		best := -1
		for r, sum := range sums {
			if held[r] < room && !slices.Contains(m[e], r) && (best < 0 || sum < sums[best]) {
				best = r
			}
		}
		if best < 0 {
			continue // all replicas with a place have it
		}
		m[e] = append(m[e], best)
		sums[best] += each[e]
		held[best]++
	}
	for _, on := range m {
		slices.Sort(on[1:])
	}
	return m
}

// Shared returns by replica the rows that it has where all holders of an expert have equal
// parts of its rows.
func Shared(m piece.Map, rows []int, replicas int) []float64 {
	sums := make([]float64, replicas)
	for e, on := range m {
		for _, r := range on {
			sums[r] += float64(rows[e]) / float64(len(on))
		}
	}
	return sums
}
