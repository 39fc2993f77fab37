package schedule

// Interleaved returns the interleaved 1F1B schedule of one stage (Narayanan et
// al. 2021, section 2.2; the order of Megatron-LM). The chain goes round the
// stages in chunks turns. Forwards take groups of stages microbatches through
// chunk after chunk, backwards through the chunks in reverse. After a warm-up
// of
//
//	2·(stages-1-stage) + (chunks-1)·stages
//
// forwards, one forward and one backward alternate, then come the backwards
// that are left. It panics unless microbatches is a multiple of stages.
func Interleaved(stage, stages, chunks, microbatches int) []Instr {
	if microbatches%stages != 0 {
		panic("schedule: interleaved needs whole groups of microbatches")
	}
	nth := func(op Op, k int) Instr {
		group, chunk := k/(stages*chunks), k%(stages*chunks)/stages
		if op == B {
			chunk = chunks - 1 - chunk
		}
		return Instr{op, group*stages + k%stages, chunk}
	}
	all := chunks * microbatches
	warmup := min(interleavedWarmup(stage, stages, chunks), all)
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

func interleavedWarmup(stage, stages, chunks int) int {
	return 2*(stages-1-stage) + (chunks-1)*stages
}
