package schedule

// Interleaved returns the interleaved 1F1B schedule of one stage (Narayanan et
// al. 2021, section 2.2; the order of Megatron-LM). The chain goes round the
// stages in chunks turns. Forwards take groups of microbatches through chunk
// after chunk, backwards through the chunks in reverse. After a warm-up of
//
//	2·(stages-1-stage) + (chunks-1)·(microbatches of the first group)
//
// forwards, one forward and one backward alternate, then come the backwards
// that are left.
//
// A group is as many microbatches as there are stages. Where these do not divide
// the microbatches, the groups are fewer and larger, as PyTorch has them (its
// Interleaved1F1B); there they must be equal, here the first ones have one more.
func Interleaved(stage, stages, chunks, microbatches int) []Instr {
	g := groups(stages, microbatches)
	nth := func(op Op, k int) Instr {
		microbatch, chunk := g.nth(k, chunks)
		if op == B {
			chunk = chunks - 1 - chunk
		}
		return Instr{op, microbatch, chunk}
	}
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

func interleavedWarmup(stage, stages, chunks, microbatches int) int {
	return 2*(stages-1-stage) + (chunks-1)*groups(stages, microbatches).largest()
}

// grouping says in which groups microbatches go through the chunks: so many of size,
// behind so many with one more.
type grouping struct{ larger, size int }

// groups returns as many groups as whole turns of the stages fit in the microbatches,
// at least one.
func groups(stages, microbatches int) grouping {
	n := max(1, microbatches/stages)
	return grouping{larger: microbatches % n, size: microbatches / n}
}

// largest returns the microbatches of the first group.
func (g grouping) largest() int { return g.size + min(1, g.larger) }

// nth returns the k-th pair of a microbatch and a chunk.
func (g grouping) nth(k, chunks int) (microbatch, chunk int) {
	first, size := 0, g.size+1 // microbatches before the larger groups
	if behind := k - g.larger*size*chunks; behind >= 0 {
		first, size, k = g.larger*size, g.size, behind
	}
	return first + k/(size*chunks)*size + k%size, k % (size * chunks) / size
}
