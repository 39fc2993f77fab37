package schedule

import (
	"cmp"
	"slices"

	"dynmo/src/partition"
)

// Forward returns a step of forward passes alone. Check does not accept such steps. Every stage
// orders its passes by an ideal time. In this time all passes take equally long, and each begins
// when the pass before it on the chain ends. A microbatch enters the chain as soon as none of its
// passes meets a pass of an earlier microbatch on a stage. All passes that a pass waits for are
// earlier in this time. So stages with one buffer for each virtual stage never wait for each other
// in a circle.
func Forward(m partition.Map, microbatches int) Schedule {
	s := Schedule{Map: m, Microbatches: microbatches, Lists: make([][]Instr, m.Stages)}
	meets := meetings(m)
	enters := make([]int, microbatches) // by microbatch: when it enters the chain
	for i := range enters {
		if i > 0 {
			enters[i] = enters[i-1] + 1
		}
		for slices.ContainsFunc(enters[max(0, i-len(meets)):i], func(earlier int) bool {
			return enters[i]-earlier < len(meets) && meets[enters[i]-earlier]
		}) {
			enters[i]++
		}
	}
	for stage := range s.Lists {
		list := make([]Instr, 0, m.Chunks*microbatches)
		for microbatch := range microbatches {
			for chunk := range m.Chunks {
				list = append(list, Instr{F, microbatch, chunk})
			}
		}
		begins := func(in Instr) int { return enters[in.Microbatch] + m.Place(stage, in.Chunk) }
		slices.SortFunc(list, func(a, b Instr) int { return cmp.Compare(begins(a), begins(b)) })
		s.Lists[stage] = list
	}
	return s
}

// meetings reports, for each delay between two microbatches, whether their passes would meet on a
// stage. They meet if the delay is the distance of two virtual stages of one stage.
func meetings(m partition.Map) []bool {
	meets := make([]bool, m.Virtual())
	for stage := range m.Stages {
		for a := range m.Chunks {
			for b := range a {
				meets[m.Place(stage, a)-m.Place(stage, b)] = true
			}
		}
	}
	return meets
}

// SkipFrozen returns the schedule of a step in which virtual stages before first are frozen. Frozen
// virtual stages do forwards alone, and receive no gradients. Other instructions keep their order.
// Buffers follow the Peaks of the whole schedule, which are large enough.
func (s Schedule) SkipFrozen(first int) Schedule {
	if first <= 0 {
		return s
	}
	lists := make([][]Instr, len(s.Lists))
	for stage, list := range s.Lists {
		lists[stage] = slices.DeleteFunc(slices.Clone(list), func(in Instr) bool {
			return in.Op != F && s.Map.Place(stage, in.Chunk) < first
		})
	}
	s.Lists, s.First = lists, first
	return s
}
