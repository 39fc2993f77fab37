package schedule

import "fmt"

// Check proves that the lists of all stages form a legal step: on every stage
// each microbatch has F before I before W, once each; W comes in ascending
// order of microbatches (so that gradients add up in one order); no more than
// inFlight(stage) microbatches are between their F and their W; and the stages
// do not wait for each other in a circle. The error names stage and
// instruction.
func Check(lists [][]Instr, microbatches int, inFlight func(stage int) int) error {
	for s, list := range lists {
		if err := checkStage(list, microbatches, inFlight(s)); err != nil {
			return fmt.Errorf("schedule: stage %d: %w", s, err)
		}
	}
	return checkProgress(lists, microbatches)
}

// checkStage checks what one stage can be blamed for.
func checkStage(list []Instr, microbatches, limit int) error {
	const (
		fresh = iota
		forwarded
		inputsDone
		done
	)
	state := make([]int, microbatches)
	open, nextW := 0, 0
	for i, in := range list {
		if in.Op > W {
			return fmt.Errorf("instruction %d, %v: messages are derived, not scheduled", i, in)
		}
		if in.Microbatch < 0 || in.Microbatch >= microbatches {
			return fmt.Errorf("instruction %d, %v: there are %d microbatches", i, in, microbatches)
		}
		m := in.Microbatch
		want := map[Op]int{F: fresh, B: forwarded, I: forwarded, W: inputsDone}[in.Op]
		if state[m] != want {
			return fmt.Errorf("instruction %d, %v: out of order, or twice", i, in)
		}
		if in.Op == B || in.Op == W {
			if m != nextW {
				return fmt.Errorf("instruction %d, %v: weights of microbatch %d come first", i, in, nextW)
			}
			nextW++
			open--
		}
		switch in.Op {
		case F:
			state[m] = forwarded
			if open++; open > limit {
				return fmt.Errorf("instruction %d, %v: %d microbatches in flight, the cap is %d", i, in, open, limit)
			}
		case I:
			state[m] = inputsDone
		default:
			state[m] = done
		}
	}
	for m, st := range state {
		if st != done {
			return fmt.Errorf("microbatch %d is not finished", m)
		}
	}
	return nil
}

// checkProgress runs the lists without time: a stage goes on when what its
// next instruction needs from a neighbour exists.
func checkProgress(lists [][]Instr, microbatches int) error {
	stages := len(lists)
	forward := make([][]bool, stages) // F done, by stage and microbatch
	inputs := make([][]bool, stages)  // I (or B) done
	next := make([]int, stages)
	for s := range stages {
		forward[s], inputs[s] = make([]bool, microbatches), make([]bool, microbatches)
	}
	ready := func(s int, in Instr) bool {
		switch in.Op {
		case F:
			return s == 0 || forward[s-1][in.Microbatch]
		case B, I:
			return s == stages-1 || inputs[s+1][in.Microbatch]
		}
		return true
	}
	for moved := true; moved; {
		moved = false
		for s, list := range lists {
			for next[s] < len(list) && ready(s, list[next[s]]) {
				in := list[next[s]]
				switch in.Op {
				case F:
					forward[s][in.Microbatch] = true
				case B, I:
					inputs[s][in.Microbatch] = true
				}
				next[s]++
				moved = true
			}
		}
	}
	for s, list := range lists {
		if next[s] < len(list) {
			return fmt.Errorf("schedule: stage %d: instruction %d, %v: deadlock", s, next[s], list[next[s]])
		}
	}
	return nil
}
