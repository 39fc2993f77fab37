package schedule

// ZBH1 returns the ZB-H1 schedule of one stage (Qi et al. 2024, section 2):
// 1F1B's order of F and I, with W put off so that it fills what 1F1B leaves
// idle at the end. At most stages microbatches are between F and W, as many as
// 1F1B has on its first stage.
//
// If all stages cost the same, messages nothing, w <= f, w <= i, and there are
// 2·stages microbatches or more, stage s is idle between its first F and its
// last W for
//
//	(stages-1-s)·(f+i-w)
//
// of which the paper gives the largest, the first stage's.
//
// Departs: a microbatch is in flight until its W, which needs the activations
// too. Until its I, as for 1F1B, it is stages-stage of them at most.
func ZBH1(stage, stages, microbatches int) []Instr {
	return deferred(stages-1-stage, stage, microbatches)
}

// ZBH2 returns the ZB-H2 schedule of one stage (Qi et al. 2024, section 2):
// a warm-up twice as long fills what ZB-H1 leaves idle. At most 2·stages-1
// microbatches are between F and W. Under the conditions of ZBH1 stage s is
// idle for
//
//	(stages-1-s)·(f+i-2w)
func ZBH2(stage, stages, microbatches int) []Instr {
	return deferred(2*(stages-1-stage), 2*stage, microbatches)
}

// deferred returns warmup forwards, then F and I in turn, with W delay
// microbatches behind I, then the I and W that are left in turn, then the W.
func deferred(warmup, delay, microbatches int) []Instr {
	list := make([]Instr, 0, 3*microbatches)
	for m := range microbatches + warmup + delay {
		if m < microbatches {
			list = append(list, Instr{F, m, 0})
		}
		if i := m - warmup; i >= 0 && i < microbatches {
			list = append(list, Instr{I, i, 0})
		}
		if w := m - warmup - delay; w >= 0 && w < microbatches {
			list = append(list, Instr{W, w, 0})
		}
	}
	return list
}
