package schedule

import "math"

// times holds the start of every instruction and the time left after it, for lists whose order may
// change. Instructions are numbered: first by virtual stage and op (F, I, W), then by microbatch.
type times struct {
	o      ListOptions
	length int     // of a stage's list
	order  []int32 // all lists, one behind the other
	at     []int32 // by instruction: its place in order
	kinds  []kind  // by virtual stage and op
	kind   []int32 // by instruction
	start  []float64
	tail   []float64 // least seconds from an instruction's end to the end of the step
	sorted []int32   // instructions in an order in which each follows those that it needs
	next   []int32   // by stage: the first instruction without a start
	clock  []float64 // by stage
}

// kind describes all instructions of one virtual stage and op.
type kind struct {
	seconds    float64
	op         Op
	chunk      int
	from, to   int32 // offset to the needed instruction on another stage, and to the one that needs this; 0: none
	wait, send float64
}

// newTimes returns the times of lists. An undivided backward counts as two instructions.
func newTimes(o ListOptions, s Schedule) *times {
	o.Map = s.Map
	n, m := o.Map.Virtual(), o.Microbatches
	all := 3 * n * m
	ints, floats := make([]int32, 4*all+o.Map.Stages), make([]float64, 2*all+o.Map.Stages)
	t := &times{
		o: o, length: all / o.Map.Stages, order: ints[:all], at: ints[all : 2*all], kind: ints[2*all : 3*all], sorted: ints[3*all : 3*all : 4*all], next: ints[4*all:],
		start: floats[:all], tail: floats[all : 2*all], clock: floats[2*all:], kinds: make([]kind, 3*n),
	}
	for v, c := range o.Costs {
		t.kinds[3*v] = kind{seconds: c.Forward, op: F, chunk: o.Map.Chunk(v)}
		t.kinds[3*v+1] = kind{seconds: c.Input, op: I, chunk: o.Map.Chunk(v)}
		t.kinds[3*v+2] = kind{seconds: c.Weight, op: W, chunk: o.Map.Chunk(v)}
	}
	for v := range n - 1 {
		if o.Map.Stage(v) != o.Map.Stage(v+1) {
			f, g, i, j := &t.kinds[3*v], &t.kinds[3*v+3], &t.kinds[3*v+1], &t.kinds[3*v+4]
			f.to, g.from, j.to, i.from = int32(3*m), int32(-3*m), int32(-3*m), int32(3*m)
			f.send, g.wait, j.send, i.wait = o.message(v), o.message(v), o.message(v), o.message(v)
		}
	}
	for i := range t.kind {
		t.kind[i] = int32(i / m)
	}
	i := 0
	put := func(stage int, in Instr, op int) {
		number := (3*o.Map.Place(stage, in.Chunk)+op)*m + in.Microbatch
		t.order[i], t.at[number] = int32(number), int32(i)
		i++
	}
	for stage, list := range s.Lists {
		for _, in := range list {
			switch in.Op {
			case F:
				put(stage, in, 0)
			case W:
				put(stage, in, 2)
			default:
				put(stage, in, 1)
				if in.Op == B {
					put(stage, in, 2)
				}
			}
		}
	}
	return t
}

// schedule returns the lists.
func (t *times) schedule() Schedule {
	s := Schedule{Kind: KindList, Map: t.o.Map, Microbatches: t.o.Microbatches, Lists: make([][]Instr, t.o.Map.Stages)}
	all := make([]Instr, len(t.order))
	for i, number := range t.order {
		k := &t.kinds[t.kind[number]]
		all[i] = Instr{k.op, int(number) % t.o.Microbatches, k.chunk}
	}
	for stage := range s.Lists {
		s.Lists[stage] = all[stage*t.length : (stage+1)*t.length : (stage+1)*t.length]
	}
	return s
}

// set computes the times, and returns the seconds of the step. It returns +Inf if stages wait for
// each other in a circle.
func (t *times) set() (seconds float64) {
	for i := range t.start {
		t.start[i] = -1
	}
	t.sorted = t.sorted[:0]
	clear(t.clock)
	clear(t.next)
	for len(t.sorted) < len(t.order) {
		before := len(t.sorted)
		for stage := range t.next {
			t.advance(stage)
		}
		if len(t.sorted) == before {
			return math.Inf(1)
		}
	}
	for _, clock := range t.clock {
		seconds = max(seconds, clock-t.o.Dispatch)
	}
	t.setTails()
	return seconds
}

// advance starts instructions of a stage until an instruction lacks an input.
func (t *times) advance(stage int) {
	list := t.order[stage*t.length : (stage+1)*t.length]
	clock, i := t.clock[stage], int(t.next[stage])
	for ; i < len(list); i++ {
		number := list[i]
		k := &t.kinds[t.kind[number]]
		if k.from != 0 {
			needs := number + k.from
			if t.start[needs] < 0 {
				break
			}
			clock = max(clock, t.start[needs]+t.kinds[t.kind[needs]].seconds+k.wait)
		}
		t.start[number] = clock
		clock = clock + k.seconds + t.o.Dispatch
		t.sorted = append(t.sorted, number)
	}
	t.clock[stage], t.next[stage] = clock, int32(i)
}

// setTails computes the seconds left after each instruction.
func (t *times) setTails() {
	for i := len(t.sorted) - 1; i >= 0; i-- {
		number := t.sorted[i]
		t.tail[number] = max(t.behind(int(t.at[number])), t.needed(number))
	}
}

// behind returns the least seconds left after the instruction at a place, on its own stage alone.
func (t *times) behind(at int) float64 {
	if (at+1)%t.length == 0 {
		return 0
	}
	number := t.order[at+1]
	return t.o.Dispatch + t.kinds[t.kind[number]].seconds + t.tail[number]
}

// needed returns the least seconds left after an instruction that other stages need.
func (t *times) needed(number int32) float64 {
	k := &t.kinds[t.kind[number]]
	if k.to == 0 {
		return 0
	}
	other := number + k.to
	return k.send + t.kinds[t.kind[other]].seconds + t.tail[other]
}

// free returns when the stage can start the instruction at a place of order.
func (t *times) free(at int) float64 {
	if at%t.length == 0 {
		return 0
	}
	return t.end(t.order[at-1]) + t.o.Dispatch
}

// end returns when an instruction ends.
func (t *times) end(number int32) float64 {
	return t.start[number] + t.kinds[t.kind[number]].seconds
}

// arrives returns when an instruction's input from another stage arrives.
func (t *times) arrives(number int32) float64 {
	k := &t.kinds[t.kind[number]]
	if k.from == 0 {
		return 0
	}
	return t.end(number+k.from) + k.wait
}
