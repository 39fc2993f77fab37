package schedule

// zbh1 returns the ZB-H1 schedule of one stage (Qi et al. 2024, section 2). It has 1F1B's order of
// F and I. W are delayed into the idle time at the end. At most `stages` microbatches are between F
// and W, as on the first stage of 1F1B.
//
// Let all stages cost the same with w <= f and w <= i, messages cost nothing, and let there
// be at least 2·stages microbatches. Then stage s is idle between its first F and its last W
// for
//
//	(stages-1-s)·(f+i-w)
//
// The paper gives the idle time of the first stage, which is the largest.
//
// Departs: a microbatch counts as in flight until its W, because W needs the activations too. At
// most stages-stage microbatches are between F and I, as in 1F1B.
func zbh1(stage, stages, microbatches int) []Instr {
	return deferred(stages-1-stage, stage, microbatches, oneChunk)
}

// zbh2 returns the ZB-H2 schedule of one stage (Qi et al. 2024, section 2). A warm-up twice as long
// fills the idle time of ZB-H1. At most 2·stages-1 microbatches are between F and W. Under the
// conditions of zbh1 stage s is idle for
//
//	(stages-1-s)·(f+i-2w)
func zbh2(stage, stages, microbatches int) []Instr {
	return deferred(2*(stages-1-stage), 2*stage, microbatches, oneChunk)
}

// oneChunk returns an instruction of a stage with one chunk.
func oneChunk(op Op, k int) Instr { return Instr{op, k, 0} }

// deferred returns warmup forwards, then F and I in turn, with W delay instructions behind I. Then
// come the remaining I and W in turn, then the remaining W. Each op occurs `all` times. nth returns
// the k-th instruction of an op.
func deferred(warmup, delay, all int, nth func(op Op, k int) Instr) []Instr {
	list := make([]Instr, 0, 3*all)
	for k := range all + warmup + delay {
		if k < all {
			list = append(list, nth(F, k))
		}
		if i := k - warmup; i >= 0 && i < all {
			list = append(list, nth(I, i))
		}
		if w := k - warmup - delay; w >= 0 && w < all {
			list = append(list, nth(W, w))
		}
	}
	return list
}
