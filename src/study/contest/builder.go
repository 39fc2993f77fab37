package contest

import (
	"math"

	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// heuristic decides what a stage does next.
type heuristic interface {
	choose(stage int) choice
	done(c choice, gap float64) // is called once it has been carried out, with how long the stage waited before
}

// choice is an instruction that a stage would carry out; a start of +Inf is none.
type choice struct {
	virtual, op int
	start       float64
}

// none is the choice of a stage that cannot know yet.
func none() choice { return choice{start: math.Inf(1)} }

// builder makes the lists of a heuristic: of what the stages would do next, that which
// starts first comes first. Microbatches of each op and chunk come in ascending order.
type builder struct {
	Problem
	m     partition.Map
	took  [][ops]float64 // by virtual stage and op
	next  [][ops]int     // by virtual stage and op: the microbatch that comes next
	end   [][ops][]float64
	clock []float64 // by stage: when it is free
	held  []int     // by stage: microbatches of its chunks between F and W
	lists [][]schedule.Instr
}

func newBuilder(p Problem, m partition.Map) *builder {
	b := &builder{
		Problem: p, m: m, next: make([][ops]int, m.Virtual()), end: make([][ops][]float64, m.Virtual()),
		clock: make([]float64, m.Stages), held: make([]int, m.Stages), lists: make([][]schedule.Instr, m.Stages),
	}
	for v, c := range p.over(m) {
		b.took = append(b.took, seconds(c))
		for op := range ops {
			b.end[v][op] = make([]float64, p.Microbatches)
		}
	}
	return b
}

// build makes the lists. Where every stage waits for another, whatever some stage
// could do first is done.
func (b *builder) build(h heuristic) schedule.Schedule {
	choices := make([]choice, b.m.Stages)
	for stage := range choices {
		choices[stage] = h.choose(stage)
	}
	for range ops * b.m.Virtual() * b.Microbatches {
		first := none()
		for _, c := range choices {
			if c.start < first.start {
				first = c
			}
		}
		if math.IsInf(first.start, 1) {
			first = b.any()
		}
		stage := b.m.Stage(first.virtual)
		gap := first.start - b.clock[stage]
		if len(b.lists[stage]) == 0 {
			gap = 0
		}
		b.do(first)
		h.done(first, gap)
		for s := max(0, stage-1); s < min(stage+2, len(choices)); s++ {
			choices[s] = h.choose(s)
		}
	}
	return schedule.Schedule{Kind: schedule.KindList, Map: b.m, Microbatches: b.Microbatches, Lists: b.lists}
}

// any returns the instruction that can start first.
func (b *builder) any() choice {
	first := none()
	for v := range b.next {
		for _, op := range []int{1, 2, 0} {
			if start := b.start(v, op); start < first.start {
				first = choice{v, op, start}
			}
		}
	}
	return first
}

// start returns when the next instruction of an op can start, +Inf if that is not
// known. An F leaves room for those of the chunks behind it: without it microbatches
// that have entered could not go on.
func (b *builder) start(v, op int) float64 {
	k, done, stage := b.next[v][op], b.next[v], b.m.Stage(v)
	switch {
	case k == b.Microbatches || op > 0 && k == done[op-1]:
		return math.Inf(1)
	case op == 0 && b.held[stage]+b.m.Chunks-b.m.Chunk(v) > b.m.Chunks*b.limit():
		return math.Inf(1)
	case op == 0 && v > 0:
		return max(b.clock[stage], b.sent(v-1, v, op, k))
	case op == 1 && v < len(b.next)-1:
		return max(b.clock[stage], b.sent(v+1, v, op, k))
	}
	return b.clock[stage]
}

// sent returns when the result of an instruction arrives on a virtual stage beside it.
func (b *builder) sent(from, to, op, k int) float64 {
	if b.next[from][op] <= k {
		return math.Inf(1)
	}
	if b.m.Stage(from) == b.m.Stage(to) {
		return b.end[from][op][k]
	}
	return b.end[from][op][k] + b.Message
}

// do carries out an instruction.
func (b *builder) do(c choice) {
	stage, k := b.m.Stage(c.virtual), b.next[c.virtual][c.op]
	b.clock[stage] = c.start + b.took[c.virtual][c.op]
	b.end[c.virtual][c.op][k] = b.clock[stage]
	b.next[c.virtual][c.op]++
	switch c.op {
	case 0:
		b.held[stage]++
	case 2:
		b.held[stage]--
	}
	b.lists[stage] = append(b.lists[stage], schedule.Instr{Op: opOf[c.op], Microbatch: k, Chunk: b.m.Chunk(c.virtual)})
}
