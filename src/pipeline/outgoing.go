package pipeline

import (
	"slices"

	"dynmo/src/schedule"
)

// atLeast is how many outgoing gradients a virtual stage has buffers for: one
// travels while the next is computed.
const atLeast = 2

// outgoing returns how many buffers for outgoing gradients every virtual stage
// needs so that no stages wait for each other in a circle. A backward for
// inputs begins once the gradient in the oldest buffer has been taken. The
// receiver takes gradients in the order of its own backwards, and at any time
// as many as it has buffers. Where that order is the sender's, atLeast will do;
// a schedule whose stages work in different orders is legal, and may need
// more. So the lists are carried out without time, and who would wait for ever
// gets one more buffer.
func outgoing(s schedule.Schedule, peaks []schedule.Peak) []int {
	w := newWalk(s)
	w.taken = make([]int, len(peaks))
	for v, p := range peaks {
		w.taken[v] = p.Between + 1 // as rooms has it
	}
	for {
		moved, waits := w.pass()
		switch {
		case moved:
		case waits < 0:
			return w.buffers
		default:
			w.buffers[waits]++
		}
	}
}

// walk is how far lists are that are carried out without time. All slices are
// by virtual stage.
type walk struct {
	schedule.Schedule
	next    []int    // by stage: instructions carried out
	forward [][]bool // by microbatch: F done
	input   [][]bool // by microbatch: I done
	sent    [][]int  // microbatches, in the order of their I's
	inputs  []int    // I's done
	place   [][]int  // by microbatch: its place in sent
	taken   []int    // incoming gradients that there have been buffers for so far
	buffers []int    // for outgoing gradients
}

func newWalk(s schedule.Schedule) *walk {
	n := s.Map.Virtual()
	w := &walk{Schedule: s, next: make([]int, len(s.Lists)), inputs: make([]int, n), buffers: slices.Repeat([]int{atLeast}, n)}
	for v := range n {
		w.forward = append(w.forward, make([]bool, s.Microbatches))
		w.input = append(w.input, make([]bool, s.Microbatches))
		w.sent = append(w.sent, order(s.Lists[s.Map.Stage(v)], s.Map.Chunk(v), schedule.I, schedule.B))
		w.place = append(w.place, make([]int, s.Microbatches))
		for at, m := range w.sent[v] {
			w.place[v][m] = at
		}
	}
	return w
}

// pass carries out what can be on every stage. It reports whether anything
// could, and a virtual stage that waits for a buffer only, -1 if there is none.
func (w *walk) pass() (moved bool, waits int) {
	waits = -1
	for stage, list := range w.Lists {
		for w.next[stage] < len(list) {
			in := list[w.next[stage]]
			v := w.Map.Place(stage, in.Chunk)
			if !w.ready(v, in) {
				break
			}
			if w.full(v, in) {
				waits = v
				break
			}
			w.do(v, in)
			w.next[stage]++
			moved = true
		}
	}
	return moved, waits
}

// ready reports whether what an instruction needs from its neighbours exists.
func (w *walk) ready(v int, in schedule.Instr) bool {
	switch in.Op {
	case schedule.F:
		return v == 0 || w.forward[v-1][in.Microbatch]
	case schedule.I, schedule.B:
		return v == len(w.inputs)-1 || w.input[v+1][in.Microbatch]
	}
	return true
}

// full reports whether a backward for inputs must wait until a gradient is taken.
func (w *walk) full(v int, in schedule.Instr) bool {
	oldest := w.inputs[v] - w.buffers[v]
	if in.Op != schedule.I && in.Op != schedule.B || v == 0 || w.Map.Stage(v-1) == w.Map.Stage(v) || oldest < 0 {
		return false
	}
	return w.place[v-1][w.sent[v][oldest]] >= w.taken[v-1]
}

// do carries out an instruction.
func (w *walk) do(v int, in schedule.Instr) {
	switch in.Op {
	case schedule.F:
		w.forward[v][in.Microbatch] = true
	case schedule.I, schedule.B:
		w.input[v][in.Microbatch] = true
		w.inputs[v]++
	}
	if in.Op == schedule.W || in.Op == schedule.B {
		w.taken[v]++
	}
}
