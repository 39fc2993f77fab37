package schedule

import (
	"math"

	"dynmo/src/cost"
	"dynmo/src/partition"
)

// ListOptions is what List makes a schedule for. Every stage has one chunk.
type ListOptions struct {
	Costs        []cost.Stage // by stage
	Message      []float64    // seconds from stage s to s+1, and back; nil: none
	Microbatches int
	InFlight     []int   // by stage: most microbatches between F and W, at least 1; nil: no cap
	Theta        float64 // in [0,1]: the share of W that must be over when F or I can start, as far as is known
	ForwardFirst bool    // of F and I that can start at the same time, F
}

// List returns a schedule made for costs, by an event-driven list scheduler: of
// what every stage would do next, that which starts first is put down, then the
// next. A stage would do F or I, whichever can start first (I on ties, F while
// the cap allows); when both must wait, W fits in if at least Theta of it is
// over when they start. A stage takes each kind in ascending order of
// microbatches, and knows what its neighbours have begun, not what they will.
//
// Deterministic; O(stages · instructions). It always comes to an end: the
// oldest unfinished microbatch can go on, for what fills a stage before it are
// older ones whose W is left.
func List(o ListOptions) Schedule {
	p := len(o.Costs)
	l := lister{ListOptions: o, stages: make([]listed, p)}
	s := Schedule{Kind: KindList, Map: partition.Line(p), Microbatches: o.Microbatches, Lists: make([][]Instr, p)}
	for stage := range l.stages {
		at := &l.stages[stage]
		at.forward, at.input = make([]float64, o.Microbatches), make([]float64, o.Microbatches)
		s.Lists[stage] = make([]Instr, 0, 3*o.Microbatches)
	}
	for stage := range l.stages {
		l.choose(stage)
	}
	for range 3 * p * o.Microbatches {
		first := 0
		for stage := range l.stages {
			if l.stages[stage].before(&l.stages[first]) {
				first = stage
			}
		}
		at := &l.stages[first]
		s.Lists[first] = append(s.Lists[first], Instr{at.op, at.next[at.op], 0})
		l.begin(first)
		for stage := max(0, first-1); stage <= min(first+1, p-1); stage++ {
			l.choose(stage)
		}
	}
	return s
}

// lister is the state of List.
type lister struct {
	ListOptions
	stages []listed
}

// listed is one stage.
type listed struct {
	clock          float64    // when it is free
	next           [W + 1]int // by op: the next microbatch
	forward, input []float64  // by microbatch: end of its F and I
	op             Op         // what it would do next
	start          float64    // when; +Inf: nothing is known that it could do
}

// before reports whether s starts before t; of equals W is last, so that it is
// known what it would keep waiting.
func (s *listed) before(t *listed) bool {
	return s.start < t.start || s.start == t.start && s.op < t.op
}

// message returns the seconds between a stage and the one behind it.
func (l *lister) message(stage int) float64 {
	if l.Message == nil {
		return 0
	}
	return l.Message[stage]
}

// arrivals returns when the stage's next F and I could start, +Inf if unknown.
func (l *lister) arrivals(stage int) (forward, input float64) {
	at := &l.stages[stage]
	forward, input = math.Inf(1), math.Inf(1)
	if m := at.next[F]; m < l.Microbatches && (l.InFlight == nil || m-at.next[W] < l.InFlight[stage]) {
		if stage == 0 {
			forward = at.clock
		} else if before := &l.stages[stage-1]; m < before.next[F] {
			forward = max(at.clock, before.forward[m]+l.message(stage-1))
		}
	}
	if m := at.next[I]; m < at.next[F] {
		if stage == len(l.stages)-1 {
			input = at.clock
		} else if behind := &l.stages[stage+1]; m < behind.next[I] {
			input = max(at.clock, behind.input[m]+l.message(stage))
		}
	}
	return forward, input
}

// choose decides what the stage would do next, and when.
func (l *lister) choose(stage int) {
	at := &l.stages[stage]
	forward, input := l.arrivals(stage)
	at.op, at.start = I, input
	if forward < input || l.ForwardFirst && forward == input {
		at.op, at.start = F, forward
	}
	if at.next[W] < at.next[I] && at.clock+l.Theta*l.Costs[stage].Weight <= at.start && at.start > at.clock {
		at.op, at.start = W, at.clock
	}
}

// begin carries out what the stage has chosen.
func (l *lister) begin(stage int) {
	at, c := &l.stages[stage], l.Costs[stage]
	m := at.next[at.op]
	at.next[at.op]++
	switch at.op {
	case F:
		at.clock = at.start + c.Forward
		at.forward[m] = at.clock
	case I:
		at.clock = at.start + c.Input
		at.input[m] = at.clock
	case W:
		at.clock = at.start + c.Weight
	}
}
