package schedule

// dryRun carries out the lists of all stages in a legal order, without times.
type dryRun struct {
	Schedule
	next    []int  // by stage: instructions carried out
	forward []bool // by virtual stage and microbatch: F done
	input   []bool // by virtual stage and microbatch: I (or B) done
	inputs  []int  // by virtual stage: how many I (or B)
	weights []int  // by virtual stage: how many W (or B)
}

func (s Schedule) dryRun() *dryRun {
	n := s.Map.Virtual()
	return &dryRun{
		Schedule: s, next: make([]int, len(s.Lists)),
		forward: make([]bool, n*s.Microbatches), input: make([]bool, n*s.Microbatches),
		inputs: make([]int, n), weights: make([]int, n),
	}
}

// pass runs every stage until its next instruction needs an output that is not made yet, or until
// hold says that the stage must wait. hold may be nil. pass reports whether any stage ran an
// instruction.
func (r *dryRun) pass(hold func(virtual int, in Instr) bool) (moved bool) {
	for stage, list := range r.Lists {
		for r.next[stage] < len(list) {
			in := list[r.next[stage]]
			v := r.Map.Place(stage, in.Chunk)
			if !r.ready(v, in) || hold != nil && hold(v, in) {
				break
			}
			r.do(v, in)
			r.next[stage]++
			moved = true
		}
	}
	return moved
}

// ready reports whether the inputs of an instruction from other stages exist.
func (r *dryRun) ready(v int, in Instr) bool {
	switch in.Op {
	case F:
		return v == 0 || r.forward[(v-1)*r.Microbatches+in.Microbatch]
	case B, I:
		return v == len(r.inputs)-1 || r.input[(v+1)*r.Microbatches+in.Microbatch]
	}
	return true
}

// do marks an instruction as carried out.
func (r *dryRun) do(v int, in Instr) {
	at := v*r.Microbatches + in.Microbatch
	switch in.Op {
	case F:
		r.forward[at] = true
	case B, I:
		r.input[at] = true
		r.inputs[v]++
	}
	if in.Op == B || in.Op == W {
		r.weights[v]++
	}
}
