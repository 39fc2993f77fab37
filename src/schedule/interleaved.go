package schedule

// interleaved returns the interleaved 1F1B schedule of one stage (Narayanan et al. 2021, section
// 2.2; the order of Megatron-LM). The chain passes all stages once for each chunk. Forwards take
// groups of microbatches through the chunks in order, backwards through the chunks in reverse.
// After a warm-up of
//
//	2·(stages-1-stage) + (chunks-1)·(microbatches of the first group)
//
// forwards, one forward and one backward alternate, then come the backwards
// that are left.
//
// A group has as many microbatches as there are stages. If stages do not divide the microbatches,
// the groups are fewer and larger, as in PyTorch's Interleaved1F1B. Departs: PyTorch wants equal
// groups; here the first groups may have one more microbatch.
func interleaved(stage, stages, chunks, microbatches int) []Instr {
	nth := groups(stages, microbatches).in(chunks)
	all := chunks * microbatches
	warmup := min(interleavedWarmup(stage, stages, chunks, microbatches), all)
	list := make([]Instr, 0, 2*all)
	for k := range warmup {
		list = append(list, nth(F, k))
	}
	for k := warmup; k < all; k++ {
		list = append(list, nth(F, k), nth(B, k-warmup))
	}
	for k := all - warmup; k < all; k++ {
		list = append(list, nth(B, k))
	}
	return list
}

// zbInterleaved returns the schedule of one stage in which ZB-H1's order is applied to interleaved
// chunks (PyTorch's InterleavedZeroBubble). With one chunk it is zbh1. Instructions take
// microbatches and chunks in the order of interleaved. After a warm-up of
//
//	(stages-1-stage) + (chunks-1)·(microbatches of the first group)
//
// forwards, F and I alternate. Each W comes `stage` instructions behind its I, so that W fill the
// idle time at the end. At most stages + (chunks-1)·(microbatches of the first group) microbatches
// of the chunks are between F and W. The first stage of interleaved has stages-1 more.
//
// Under the conditions of zbh1, with the costs of chunks instead of stages, stage s is idle for
// (stages-1-s)·(f+i-w) of a chunk.
func zbInterleaved(stage, stages, chunks, microbatches int) []Instr {
	g := groups(stages, microbatches)
	return deferred(stages-1-stage+(chunks-1)*g.largest(), stage, chunks*microbatches, g.in(chunks))
}

func interleavedWarmup(stage, stages, chunks, microbatches int) int {
	return 2*(stages-1-stage) + (chunks-1)*groups(stages, microbatches).largest()
}

// grouping describes the groups in which microbatches go through the chunks: first larger
// groups of size+1 microbatches, then groups of size.
type grouping struct{ larger, size int }

// groups divides the microbatches into max(1, microbatches/stages) groups.
func groups(stages, microbatches int) grouping {
	n := max(1, microbatches/stages)
	return grouping{larger: microbatches % n, size: microbatches / n}
}

// largest returns the microbatches of the first group.
func (g grouping) largest() int { return g.size + min(1, g.larger) }

// in returns a function that gives the k-th instruction of an op. F take group after group through
// the chunks in order, backwards through the chunks in reverse.
func (g grouping) in(chunks int) func(op Op, k int) Instr {
	return func(op Op, k int) Instr {
		first, size := 0, g.size+1 // microbatches before the group, and microbatches of the group
		if behind := k - g.larger*size*chunks; behind >= 0 {
			first, size, k = g.larger*size, g.size, behind
		}
		chunk := k % (size * chunks) / size
		if op != F {
			chunk = chunks - 1 - chunk
		}
		return Instr{op, first + k/(size*chunks)*size + k%size, chunk}
	}
}
