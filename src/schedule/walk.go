package schedule

// walk carries out the lists of all stages without time.
type walk struct {
	Schedule
	next    []int  // by stage: instructions carried out
	forward []bool // by virtual stage and microbatch: F done
	input   []bool // likewise: I (or B) done
	inputs  []int  // by virtual stage: how many I (or B)
	weights []int  // by virtual stage: how many W (or B)
}

func (s Schedule) walk() *walk {
	n := s.Map.Virtual()
	return &walk{
		Schedule: s, next: make([]int, len(s.Lists)),
		forward: make([]bool, n*s.Microbatches), input: make([]bool, n*s.Microbatches),
		inputs: make([]int, n), weights: make([]int, n),
	}
}

// pass lets every stage go on until what its next instruction needs from a
// neighbour does not exist, or until hold, if not nil, says that it must wait
// for something else. It reports whether any stage went on.
func (w *walk) pass(hold func(virtual int, in Instr) bool) (moved bool) {
	for stage, list := range w.Lists {
		for w.next[stage] < len(list) {
			in := list[w.next[stage]]
			v := w.Map.Place(stage, in.Chunk)
			if !w.ready(v, in) || hold != nil && hold(v, in) {
				break
			}
			w.do(v, in)
			w.next[stage]++
			moved = true
		}
	}
	return moved
}

// ready reports whether what an instruction needs from its neighbours exists.
func (w *walk) ready(v int, in Instr) bool {
	switch in.Op {
	case F:
		return v == 0 || w.forward[(v-1)*w.Microbatches+in.Microbatch]
	case B, I:
		return v == len(w.inputs)-1 || w.input[(v+1)*w.Microbatches+in.Microbatch]
	}
	return true
}

// do carries out an instruction.
func (w *walk) do(v int, in Instr) {
	at := v*w.Microbatches + in.Microbatch
	switch in.Op {
	case F:
		w.forward[at] = true
	case B, I:
		w.input[at] = true
		w.inputs[v]++
	}
	if in.Op == B || in.Op == W {
		w.weights[v]++
	}
}
