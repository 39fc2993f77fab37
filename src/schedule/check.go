package schedule

import "fmt"

// Check proves that a schedule is a legal step. For every chunk of a stage each microbatch has F
// before I before W, once each. W come in ascending order of microbatches, so that gradients are
// added in one order. On no stage are more than inFlight(stage) microbatches of its chunks between
// F and W. The stages do not wait for each other in a circle. The error names stage and
// instruction.
func (s Schedule) Check(inFlight func(stage int) int) error {
	if len(s.Lists) != s.Map.Stages {
		return fmt.Errorf("schedule: lists for %d stages, want %d", len(s.Lists), s.Map.Stages)
	}
	for stage, list := range s.Lists {
		if err := s.checkStage(list, inFlight(stage)); err != nil {
			return fmt.Errorf("schedule: stage %d: %w", stage, err)
		}
	}
	return s.checkProgress()
}

// checkStage checks the list of one stage: operations, order and the limit of microbatches in
// flight.
func (s Schedule) checkStage(list []Instr, limit int) error {
	const (
		fresh = iota
		forwarded
		inputsDone
		done
	)
	state := make([]int, s.Map.Chunks*s.Microbatches)
	nextW := make([]int, s.Map.Chunks)
	open := 0
	for i, in := range list {
		switch {
		case in.Op > W:
			return fmt.Errorf("instruction %d, %v: messages are derived, not scheduled", i, in)
		case in.Microbatch < 0 || in.Microbatch >= s.Microbatches:
			return fmt.Errorf("instruction %d, %v: there are %d microbatches", i, in, s.Microbatches)
		case in.Chunk < 0 || in.Chunk >= s.Map.Chunks:
			return fmt.Errorf("instruction %d, %v: a stage has %d chunks", i, in, s.Map.Chunks)
		}
		at := &state[in.Chunk*s.Microbatches+in.Microbatch]
		want := [...]int{F: fresh, B: forwarded, I: forwarded, W: inputsDone}[in.Op]
		if *at != want {
			return fmt.Errorf("instruction %d, %v: out of order, or twice", i, in)
		}
		if in.Op == B || in.Op == W {
			if next := nextW[in.Chunk]; in.Microbatch != next {
				return fmt.Errorf("instruction %d, %v: weights of microbatch %d come first", i, in, next)
			}
			nextW[in.Chunk]++
			open--
		}
		switch in.Op {
		case F:
			*at = forwarded
			if open++; open > limit {
				return fmt.Errorf("instruction %d, %v: %d microbatches in flight, the cap is %d", i, in, open, limit)
			}
		case I:
			*at = inputsDone
		default:
			*at = done
		}
	}
	for i, st := range state {
		if st != done {
			m := Instr{F, i % s.Microbatches, i / s.Microbatches}
			return fmt.Errorf("microbatch %s is not finished", m.String()[1:])
		}
	}
	return nil
}

// checkProgress checks that no stages wait for each other in a circle.
func (s Schedule) checkProgress() error {
	run := s.dryRun()
	for run.pass(nil) {
	}
	for stage, list := range s.Lists {
		if at := run.next[stage]; at < len(list) {
			return fmt.Errorf("schedule: stage %d: instruction %d, %v: deadlock", stage, at, list[at])
		}
	}
	return nil
}
