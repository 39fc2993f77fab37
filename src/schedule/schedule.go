// Package schedule decides in which order a stage works on its microbatches. In come a kind of
// schedule, or costs and caps. Out comes a schedule: one list of instructions for each stage. Check
// proves that the lists of all stages fit together, and a run calls it before its first step.
// Package pipeline executes the list of its own stage, package sim the lists of all stages.
package schedule

import (
	"fmt"
	"slices"
	"strings"

	"dynmo/src/partition"
	"dynmo/src/trace"
)

// Op is the operation of an instruction: one of trace's ops up to SendBackward.
type Op = trace.Op

const (
	F            = trace.F
	B            = trace.B
	I            = trace.I
	W            = trace.W
	RecvForward  = trace.RecvForward
	SendForward  = trace.SendForward
	RecvBackward = trace.RecvBackward
	SendBackward = trace.SendBackward
)

// Instr is one instruction: an op on one microbatch of the replica, for one of
// the stage's chunks of the chain.
type Instr struct {
	Op         Op
	Microbatch int
	Chunk      int
}

// String returns the op and the microbatch: "F3". For chunks other than the first it adds the
// chunk: "F3.1".
func (i Instr) String() string {
	if i.Chunk > 0 {
		return fmt.Sprintf("%v%d.%d", i.Op, i.Microbatch, i.Chunk)
	}
	return fmt.Sprintf("%v%d", i.Op, i.Microbatch)
}

// Schedule is the work of all stages in a step.
type Schedule struct {
	Kind         Kind
	Map          partition.Map // from virtual stages to stages
	Microbatches int
	Lists        [][]Instr // by stage, in order, without messages
	First        int       // virtual stages before First do forwards alone (see SkipFrozen); 0 in layouts
}

// Equal reports whether two schedules are the same work in the same order.
func (s Schedule) Equal(other Schedule) bool {
	same := len(s.Lists) == len(other.Lists) && len(s.Lists) > 0 && &s.Lists[0] == &other.Lists[0] // the usual case: nothing changed
	return s.Map == other.Map && (same || slices.EqualFunc(s.Lists, other.Lists, slices.Equal[[]Instr]))
}

// Ascending reports whether every stage has one chunk and does its F, and its I or B, in ascending
// order of microbatches. Then stages receive messages in the order in which they were sent.
func (s Schedule) Ascending() bool {
	if s.Map.Chunks > 1 {
		return false
	}
	for _, list := range s.Lists {
		forward, input := 0, 0 // next microbatch of F, and of I or B
		for _, in := range list {
			next := &input
			switch in.Op {
			case F:
				next = &forward
			case W:
				continue
			}
			if in.Microbatch != *next {
				return false
			}
			*next++
		}
	}
	return true
}

// WithMessages returns the list of one stage with its sends and receives. Activations are received
// before F, and gradients before B or I. Results are sent right after their instruction. Chunks of
// one stage exchange no messages.
func (s Schedule) WithMessages(stage int) []Instr {
	list := s.Lists[stage]
	out := make([]Instr, 0, 3*len(list))
	for _, in := range list {
		v := s.Map.Place(stage, in.Chunk)
		before := v > 0 && s.Map.Stage(v-1) != stage
		behind := v < s.Map.Virtual()-1 && s.Map.Stage(v+1) != stage
		add := func(wanted bool, op Op) {
			if wanted {
				out = append(out, Instr{op, in.Microbatch, in.Chunk})
			}
		}
		switch in.Op {
		case F:
			add(before, RecvForward)
			out = append(out, in)
			add(behind, SendForward)
		case B, I:
			add(behind, RecvBackward)
			out = append(out, in)
			add(before && v > s.First, SendBackward)
		default:
			out = append(out, in)
		}
	}
	return out
}

// Format writes lists as text: one line for each stage, with spaces between instructions.
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
