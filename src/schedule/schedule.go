// Package schedule says in which order a stage works on its microbatches. A
// schedule is data: one list of instructions for each stage. Check proves that
// the lists of all stages fit together; a run calls it once before its first
// step, and pipeline then executes its own stage's list.
package schedule

import (
	"fmt"
	"strings"
)

// Op is what an instruction does.
type Op uint8

const (
	F            Op = iota // forward
	B                      // backward: I, then W
	I                      // backward for inputs
	W                      // backward for weights
	RecvForward            // receive activations from the stage before
	SendForward            // send activations to the stage behind
	RecvBackward           // receive gradients from the stage behind
	SendBackward           // send gradients to the stage before
)

var opNames = [...]string{"F", "B", "I", "W", "RF", "SF", "RB", "SB"}

// String returns the op's short name: F, B, I, W, and RF, SF, RB, SB for messages.
func (o Op) String() string { return opNames[o] }

// Instr is one instruction: an op on one microbatch of the replica.
type Instr struct {
	Op         Op
	Microbatch int
}

// String returns the op and the microbatch: "F3".
func (i Instr) String() string { return fmt.Sprintf("%v%d", i.Op, i.Microbatch) }

// Kind names a schedule.
type Kind string

const (
	KindGPipe Kind = "gpipe"
	Kind1F1B  Kind = "1f1b"
)

// List returns the instructions of one stage.
func (k Kind) List(stage, stages, microbatches int) []Instr {
	switch k {
	case KindGPipe:
		return GPipe(microbatches)
	case Kind1F1B:
		return OneFOneB(stage, stages, microbatches)
	}
	panic("schedule: unknown kind")
}

// InFlight returns the most microbatches whose activations a stage holds.
func (k Kind) InFlight(stage, stages, microbatches int) int {
	if k == Kind1F1B {
		return min(microbatches, stages-stage)
	}
	return microbatches
}

// All returns the lists of all stages.
func (k Kind) All(stages, microbatches int) [][]Instr {
	lists := make([][]Instr, stages)
	for s := range lists {
		lists[s] = k.List(s, stages, microbatches)
	}
	return lists
}

// GPipe returns the GPipe schedule of any stage (Huang et al. 2019): all
// forwards, then all backwards. Departs: the backwards run in ascending order
// of microbatches, so that weight gradients add up in the same order as in
// every other schedule.
func GPipe(microbatches int) []Instr {
	list := make([]Instr, 0, 2*microbatches)
	for m := range microbatches {
		list = append(list, Instr{F, m})
	}
	for m := range microbatches {
		list = append(list, Instr{B, m})
	}
	return list
}

// OneFOneB returns the 1F1B schedule of one stage (PipeDream-Flush, Narayanan
// et al. 2021): min(stages-1-stage, microbatches) warm-up forwards, then one
// forward and one backward in turn, then the backwards that are left. At most
// stages-stage microbatches are in flight.
func OneFOneB(stage, stages, microbatches int) []Instr {
	warmup := min(stages-1-stage, microbatches)
	list := make([]Instr, 0, 2*microbatches)
	for m := range warmup {
		list = append(list, Instr{F, m})
	}
	for m := warmup; m < microbatches; m++ {
		list = append(list, Instr{F, m}, Instr{B, m - warmup})
	}
	for m := microbatches - warmup; m < microbatches; m++ {
		list = append(list, Instr{B, m})
	}
	return list
}

// WithMessages returns the list of one stage with the sends and receives that
// its neighbours need: activations before F and gradients before B or I are
// received, results sent right after.
func WithMessages(list []Instr, stage, stages int) []Instr {
	out := make([]Instr, 0, 3*len(list))
	for _, in := range list {
		switch in.Op {
		case F:
			if stage > 0 {
				out = append(out, Instr{RecvForward, in.Microbatch})
			}
			out = append(out, in)
			if stage < stages-1 {
				out = append(out, Instr{SendForward, in.Microbatch})
			}
		case B, I:
			if stage < stages-1 {
				out = append(out, Instr{RecvBackward, in.Microbatch})
			}
			out = append(out, in)
			if stage > 0 {
				out = append(out, Instr{SendBackward, in.Microbatch})
			}
		default:
			out = append(out, in)
		}
	}
	return out
}

// Format writes lists as text: one line for each stage, instructions apart by
// a space.
func Format(lists [][]Instr) string {
	var b strings.Builder
	for _, list := range lists {
		for i, in := range list {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(in.String())
		}
		b.WriteByte('\n')
	}
	return b.String()
}
