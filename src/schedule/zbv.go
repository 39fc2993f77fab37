package schedule

import (
	"slices"

	"dynmo/src/cost"
)

// ZBV returns the ZB-V schedule of one stage (Qi et al. 2024, section 6). The
// chain goes down the stages in chunk 0 and back up in chunk 1. So the first stage
// computes the loss, and every stage can soon alternate between its chunks. At most 2·stages
// microbatches of the two chunks are between F and W, the activations of 1F1B's first stage.
//
// A stage is never idle between its first F and its last W under three conditions: all chunks cost
// the same with f = i = w, messages cost nothing, and there are at least 2·stages microbatches. For
// fewer microbatches ZBV takes the order for 2·stages-1 and leaves out the surplus ones.
func ZBV(stage, stages, microbatches int) []Instr {
	list := make([]Instr, 0, 6*microbatches)
	var next [2][W + 1]int // by chunk and op
	add := func(chunk int, ops ...Op) {
		for _, op := range ops {
			m := next[chunk][op]
			next[chunk][op]++
			if m < microbatches {
				list = append(list, Instr{op, m, chunk})
			}
		}
	}
	for range 2*(stages-stage) - 1 {
		add(0, F)
	}
	for range stage {
		add(1, F)
		add(0, F)
	}
	for range stages - stage {
		add(1, F, I, W)
	}
	for all := max(microbatches, 2*stages-1); next[1][F] < all; {
		if next[0][F] < all {
			add(0, F)
		}
		add(0, I, W)
		add(1, F, I, W)
	}
	for range stage {
		add(0, I)
		add(1, I)
	}
	for range stages - stage {
		add(0, I, W)
	}
	for next[1][W] < next[1][I] {
		add(1, W)
	}
	for next[0][W] < next[0][I] {
		add(0, W)
	}
	return list
}

// filled returns a list schedule in place of the order of ZBV, if the list is faster. It compares
// them for chunks of equal cost with f = i = w. With too few microbatches to fill the pipe, the
// order of ZBV has gaps.
func filled(s Schedule) Schedule {
	stages := s.Map.Stages
	o := ListOptions{
		Map: s.Map, Costs: slices.Repeat([]cost.Stage{{Forward: 1, Input: 1, Weight: 1}}, 2*stages), Microbatches: s.Microbatches,
		InFlight: slices.Repeat([]int{2 * stages}, stages),
	}
	l := NewLister(o)
	seconds := newTimes(o, s).set()
	if l.Run(Rule{}) < seconds {
		s.Lists = l.Schedule().Lists
	}
	return s
}
