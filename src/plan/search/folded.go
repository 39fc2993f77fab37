package search

import (
	"dynmo/src/partition"
)

// folding cuts a chain over stages in a V of two chunks: stage s holds the s-th piece
// from the start of the chain and the s-th from its end.
type folding struct {
	sums []float64 // by layer: seconds of those before it
	slow []float64 // by stage: factor on seconds
	// back is by stage s and layer i: the most layers from the end of the chain for which the
	// stages before s have room if they have i layers from the start; -1: no room for those.
	back [][]int
	from [][]int // the layer at which stage s-1 then begins
}

// bisections is how often folded halves the range of the largest load: to a ten thousandth.
const bisections = 14

// folded returns cuts in a V of two chunks on each stage. Under them the load of the most loaded
// stage is within a ten thousandth of the least possible. seconds is by layer, with at least two
// layers for each stage; slow is by stage.
func folded(seconds, slow []float64) partition.Partition {
	f := folding{sums: make([]float64, len(seconds)+1), slow: slow}
	for l, t := range seconds {
		f.sums[l+1] = f.sums[l] + t
	}
	for range len(slow) + 1 {
		f.back, f.from = append(f.back, make([]int, len(f.sums))), append(f.from, make([]int, len(f.sums)))
	}
	most := 0.0
	for _, x := range slow {
		most = max(most, x)
	}
	low, high := 0.0, most*f.sums[len(seconds)] // any cuts will do for it
	for range bisections {
		if middle := (low + high) / 2; f.fitWithin(middle) < 0 {
			low = middle
		} else {
			high = middle
		}
	}
	return f.cuts(f.fitWithin(high))
}

// fitWithin returns where the last stage begins if no stage has more load than a limit, -1 if
// there are no such cuts.
func (f *folding) fitWithin(limit float64) int {
	stages, layers := len(f.slow), len(f.sums)-1
	for s := range f.back {
		for i := range f.back[s] {
			f.back[s][i] = -1
		}
	}
	f.back[0][0] = 0
	for s := range stages - 1 {
		left := 2 * (stages - 1 - s) // layers that the stages behind need at least
		for i, held := range f.back[s] {
			if held < 0 {
				continue
			}
			room := limit / f.slow[s]
			most := layers
			for next := i + 1; f.sums[next]-f.sums[i] <= room; next++ {
				most = min(most, layers-next-left)
				for most > s && f.secondsFromEnd(min(held, most-1), most) > room-(f.sums[next]-f.sums[i]) {
					most--
				}
				if most <= s {
					break
				}
				if most > f.back[s+1][next] {
					f.back[s+1][next], f.from[s+1][next] = most, i
				}
			}
		}
	}
	for i, held := range f.back[stages-1] {
		if held >= 0 && (f.sums[layers-held]-f.sums[i])*f.slow[stages-1] <= limit {
			return i
		}
	}
	return -1
}

// secondsFromEnd returns the seconds of the layers first to upTo, counted from the end of the
// chain.
func (f *folding) secondsFromEnd(first, upTo int) float64 {
	layers := len(f.sums) - 1
	return f.sums[layers-first] - f.sums[layers-upTo]
}

// cuts returns the cuts that the last call of fitWithin found. It returned begin. The last
// stage's two chunks are about equal.
func (f *folding) cuts(begin int) partition.Partition {
	stages, layers := len(f.slow), len(f.sums)-1
	cuts := make(partition.Partition, 2*stages+1)
	held := layers
	for s, i := stages-1, begin; s >= 0; s-- {
		held = min(f.back[s][i], held-1) // every stage leaves one for each behind it
		cuts[s], cuts[2*stages-s] = i, layers-held
		i = f.from[s][i]
	}
	lo, hi := cuts[stages-1], cuts[stages+1]
	middle := lo + 1
	for middle+1 < hi && f.sums[middle]-f.sums[lo] < f.sums[hi]-f.sums[middle] {
		middle++
	}
	cuts[stages] = middle
	return cuts
}
