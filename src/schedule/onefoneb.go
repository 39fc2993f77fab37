package schedule

// gPipe returns the GPipe schedule of any stage (Huang et al. 2019): all
// forwards, then all backwards. Departs: the backwards run in ascending order
// of microbatches, so that weight gradients add up in the same order as in
// every other schedule.
func gPipe(microbatches int) []Instr {
	list := make([]Instr, 0, 2*microbatches)
	for m := range microbatches {
		list = append(list, Instr{F, m, 0})
	}
	for m := range microbatches {
		list = append(list, Instr{B, m, 0})
	}
	return list
}

// oneFOneB returns the 1F1B schedule of one stage (PipeDream-Flush, Narayanan
// et al. 2021): min(stages-1-stage, microbatches) warm-up forwards, then one
// forward and one backward in turn, then the backwards that are left. At most
// stages-stage microbatches are in flight.
func oneFOneB(stage, stages, microbatches int) []Instr {
	warmup := min(stages-1-stage, microbatches)
	list := make([]Instr, 0, 2*microbatches)
	for m := range warmup {
		list = append(list, Instr{F, m, 0})
	}
	for m := warmup; m < microbatches; m++ {
		list = append(list, Instr{F, m, 0}, Instr{B, m - warmup, 0})
	}
	for m := microbatches - warmup; m < microbatches; m++ {
		list = append(list, Instr{B, m, 0})
	}
	return list
}
