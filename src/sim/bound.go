package sim

import (
	"dynmo/src/cost"
	"dynmo/src/partition"
)

// LowerBound returns seconds that no schedule can beat, from the first start to the last
// end of a step, whatever messages cost. The step's microbatches are alike (see
// Step.LowerBound for others). costs is by virtual stage; inFlight is, by stage, the most
// microbatches between their F and their W, nil for no cap.
//
// With one chunk on each stage it is the largest, over stages s, of the bounds
// that oneChunk derives. With several it is the largest of
//
//	Σ_{v<v0} f_v + M·Σ_{v on s} (f+i+w)_v
//
// where v0 is the first virtual stage on s. This bound ignores the cap.
func LowerBound(m partition.Map, costs []cost.Stage, microbatches int, inFlight []int) float64 {
	bound := 0.0
	for stage := range m.Stages {
		if m.Chunks == 1 {
			n := microbatches
			if c := costs[stage]; inFlight != nil && c.Input+c.Weight > 0 { // a frozen stage keeps no microbatch
				n = min(n, inFlight[stage])
			}
			bound = max(bound, oneChunk(costs, stage, microbatches, n))
			continue
		}
		b := 0.0
		for v := range m.Place(stage, 0) {
			b += costs[v].Forward
		}
		for chunk := range m.Chunks {
			b += float64(microbatches) * costs[m.Place(stage, chunk)].Seconds()
		}
		bound = max(bound, b)
	}
	return bound
}

// oneChunk returns the bounds that follow from stage s alone, where at most
// n of M microbatches are in flight. Let
//
//	head = Σ_{j<s} f_j             before the first F of s starts
//	trip = Σ_{j>s} (f+i)_j         between F and I of the same microbatch
//	tail = Σ_{j<s} i_j + w_0       after an I of s, to its W on stage 0
//	late = max(0, M-n)             F that start after that many W of s, hence I, have ended
//
// Then the step lasts at least
//
//	head + M·(f+i+w)                           s does all its work after head
//	head + M·f + late·(i+w) + trip + i + tail  the last F has its way back before it
//	head + M·(f+i) + late·w + tail             the last of all F and I is an I
//	head + f + trip + M·(i+w) + late·f         no I of s starts earlier, and n F at most are done by then
//	head + f + trip + M·i + late·(f+w) + tail  the same, up to the last I
//	head + ⌈M/n⌉·(f+trip+i+w) - w + max(w, tail)
//
// The last bound holds because each microbatch is in flight for at least f+trip+i+w. At most
// n of the M intervals overlap, so ⌈M/n⌉ of them do not overlap each other (their graph is
// perfect).
func oneChunk(costs []cost.Stage, s, microbatches, n int) float64 {
	c := costs[s]
	var head, trip float64
	tail := costs[0].Weight
	for j, x := range costs {
		if j < s {
			head += x.Forward
			tail += x.Input
		} else if j > s {
			trip += x.Forward + x.Input
		}
	}
	m, late := float64(microbatches), float64(microbatches-n)
	generations := float64((microbatches + n - 1) / n)
	return max(
		head+m*c.Seconds(),
		head+m*c.Forward+late*(c.Input+c.Weight)+trip+c.Input+tail,
		head+m*(c.Forward+c.Input)+late*c.Weight+tail,
		head+c.Forward+trip+m*(c.Input+c.Weight)+late*c.Forward,
		head+c.Forward+trip+m*c.Input+late*(c.Forward+c.Weight)+tail,
		head+generations*(trip+c.Seconds())-c.Weight+max(c.Weight, tail),
	)
}
