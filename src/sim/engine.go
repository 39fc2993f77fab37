package sim

import (
	"math"

	"dynmo/src/comm"
	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/schedule"
	"dynmo/src/trace"
)

// engine simulates replicas one after the other. It visits the stages in turn, and each stage
// advances until it lacks a message. The times do not depend on the order of these visits: a
// stage's instructions, and the messages of its links, follow the order of its list.
type engine struct {
	s            Step
	replica      int
	microbatches int

	activations []float64 // by virtual stage and microbatch: when the input of F arrives; unknown: not sent
	gradients   []float64 // by virtual stage and microbatch: when the gradient for B or I arrives
	lessons     bool      // B and I need a message of the last layer for each microbatch, and no gradients (see Run)
	taught      int       // by stage: messages received from the last layer so far
	onward      []channel // by virtual stage: to the next virtual stage
	back        []channel // by virtual stage: to the virtual stage before
	slow        []float64 // by stage
	links       []float64 // until when a link is busy
	next        []int     // by stage: the first instruction that is not done

	busy    []float64 // by stage
	extents []Extent  // by stage
	spans   [][]trace.Span
	weights []work

	// The arrivals of updated weights that replicas send each other, by layer.
	cuts    partition.Partition
	layers  []cost.Layer
	arrives []float64 // nil: nothing is sent
	began   []bool    // by virtual stage: its first forward is done
}

// unknown is the arrival of a message that has not been sent.
const unknown = -1

// channel leads from a virtual stage to the next one or the one before.
type channel struct {
	free     bool // both ends lie on one stage, or messages are free
	link     int
	from, to int // world ranks
	tag      int // comm.TagForward or comm.TagBackward
	first    int // offset of microbatch 0's tag, before tags wrap
	bytes    int64
	network  comm.Network
}

func newEngine(s Step) *engine {
	s.Schedule = s.Schedule.SkipFrozen(s.trained())
	n, stages := s.Schedule.Map.Virtual(), s.Schedule.Map.Stages
	floats := make([]float64, 2*n*s.Schedule.Microbatches+3*stages)
	take := func(count int) []float64 {
		part := floats[:count:count]
		floats = floats[count:]
		return part
	}
	channels := make([]channel, 2*n)
	return &engine{
		s: s, microbatches: s.Schedule.Microbatches,
		activations: take(n * s.Schedule.Microbatches), gradients: take(n * s.Schedule.Microbatches),
		onward: channels[:n], back: channels[n:], slow: take(stages), links: take(2 * stages),
		next: make([]int, stages), lessons: s.learnsApart(),
	}
}

// run simulates one replica. It may be called again.
func (e *engine) run(replica int) Result {
	e.prepare(replica)
	left := 0
	for _, list := range e.s.Schedule.Lists {
		left += len(list)
	}
	for left > 0 {
		done := 0
		for stage := range e.s.Schedule.Lists {
			done += e.advance(stage)
		}
		if done == 0 {
			panic("sim: the schedule is deadlocked")
		}
		left -= done
	}
	return e.result()
}

// trained returns the first virtual stage that trains, judged by its costs. A virtual stage whose
// forwards take no time has no blocks: it is frozen if the next one is.
func (s *Step) trained() (first int) {
	for v := range s.Schedule.Map.Virtual() {
		c := s.total(v)
		if c.Input+c.Weight > 0 {
			break
		}
		if c.Forward > 0 {
			first = v + 1
		}
	}
	return first
}

// learnsApart reports whether layers train although no layer has a backward for inputs.
func (s *Step) learnsApart() bool {
	trains := false
	for v := range s.Schedule.Map.Virtual() {
		c := s.total(v)
		if c.Input > 0 {
			return false
		}
		trains = trains || c.Weight > 0
	}
	return trains
}

// total returns the cost of a virtual stage for all microbatches, or for one if all are alike.
func (s *Step) total(v int) (c cost.Stage) {
	if s.PerMicrobatch == nil {
		return s.Costs[v]
	}
	for _, one := range s.PerMicrobatch[v] {
		c = c.Plus(one)
	}
	return c
}

// prepare resets the state for a replica's step. No instruction is done, all links are free, and
// the inputs at both ends of the chain have arrived.
func (e *engine) prepare(replica int) {
	e.replica = replica
	m, n := e.s.Schedule.Map, e.s.Schedule.Map.Virtual()
	for i := range e.activations {
		e.activations[i], e.gradients[i] = unknown, unknown
	}
	clear(e.activations[:e.microbatches])
	e.taught = 0
	for v := range n {
		if v == n-1 && !e.lessons || e.lessons && e.s.total(v).Weight == 0 {
			clear(e.gradients[v*e.microbatches:][:e.microbatches])
		}
	}
	clear(e.links)
	clear(e.next)
	for stage := range e.slow {
		e.slow[stage] = e.s.Network.Slowness(e.s.rank(stage, replica))
	}
	for v := range n {
		if v < n-1 {
			e.onward[v] = e.channel(v, v+1, comm.TagForward)
		}
		if v > 0 {
			e.back[v] = e.channel(v, v-1, comm.TagBackward)
		}
	}
	stages := m.Stages
	e.busy, e.extents, e.weights = make([]float64, stages), make([]Extent, stages), make([]work, n)
	if e.arrives != nil {
		e.began = make([]bool, n)
	}
	if e.s.Spans {
		e.spans = make([][]trace.Span, stages)
		for stage, list := range e.s.Schedule.Lists {
			e.spans[stage] = make([]trace.Span, 0, len(list))
		}
	}
}

// channel returns the channel between two adjacent virtual stages. They lie on one stage or on
// neighbours of the ring of stages. So a stage has two links: up and down.
func (e *engine) channel(v, to, tag int) channel {
	m := e.s.Schedule.Map
	a, b := m.Stage(v), m.Stage(to)
	if e.s.Bytes == nil || a == b {
		return channel{free: true}
	}
	c := channel{
		link: 2 * a, from: e.s.rank(a, e.replica), to: e.s.rank(b, e.replica),
		tag: tag, first: m.Chunk(to) * e.microbatches, bytes: e.s.Bytes[min(v, to)],
	}
	if b != (a+1)%m.Stages {
		c.link++
	}
	c.network = e.s.Network.Link(c.from, c.to).comm()
	return c
}

// send returns when a microbatch's message arrives that leaves at time sent.
func (e *engine) send(c *channel, microbatch int, sent float64) (arrives float64) {
	if c.free {
		return sent
	}
	factor := 1.0
	if d := e.s.Network.Delay; d.Most > 1 {
		factor = d.Factor(c.from, c.to, c.tag+(c.first+microbatch)%comm.TagMicrobatches, uint64(e.s.Number))
	}
	e.links[c.link], arrives = c.network.Travel(sent, e.links[c.link], c.bytes, factor)
	return arrives
}

// teach sends the last layer's message about a microbatch straight to each stage that trains. The
// message is so short that only its latency counts.
func (e *engine) teach(stage, microbatch int, sent float64) {
	for v := range e.s.Schedule.Map.Virtual() {
		if e.s.total(v).Weight == 0 {
			continue
		}
		arrives := sent
		if to := e.s.Schedule.Map.Stage(v); to != stage {
			factor, a, b := 1.0, e.s.rank(stage, e.replica), e.s.rank(to, e.replica)
			if d := e.s.Network.Delay; d.Most > 1 {
				factor = d.Factor(a, b, comm.TagLikeliest, uint64(e.s.Number*e.microbatches+e.taught))
			}
			_, arrives = e.s.Network.Link(a, b).comm().Travel(sent, 0, 0, factor)
		}
		e.gradients[v*e.microbatches+microbatch] = arrives
	}
	e.taught++
}

// advance carries out a stage's instructions until one lacks a message. It returns how many
// instructions it carried out.
func (e *engine) advance(stage int) (done int) {
	list := e.s.Schedule.Lists[stage]
	first := e.next[stage]
	clock := e.extents[stage].End
	for i := first; i < len(list); i++ {
		in := list[i]
		v := e.s.Schedule.Map.Place(stage, in.Chunk)
		message := v*e.microbatches + in.Microbatch
		arrives := math.Inf(-1)
		switch in.Op {
		case schedule.F:
			arrives = e.activations[message]
		case schedule.B, schedule.I:
			arrives = e.gradients[message]
		}
		if arrives == unknown {
			break
		}
		if i > 0 {
			clock += e.s.Dispatch
		}
		start := max(clock, arrives)
		seconds := e.seconds(stage, v, in)
		clock = start + seconds
		waited := 0.0 // seconds in which F waits for updated weights
		if in.Op == schedule.F && e.arrives != nil && !e.began[v] {
			end := e.firstForward(v, start, seconds)
			e.began[v], clock, waited = true, end, end-clock
		}
		if i == 0 {
			e.extents[stage].Start = start
		}
		e.busy[stage] += clock - start - waited
		switch in.Op {
		case schedule.F:
			if v < len(e.onward)-1 {
				e.activations[message+e.microbatches] = e.send(&e.onward[v], in.Microbatch, clock)
			} else if e.lessons {
				e.teach(stage, in.Microbatch, clock)
			}
		case schedule.B, schedule.I:
			if v > e.s.Schedule.First && !e.lessons {
				e.gradients[message-e.microbatches] = e.send(&e.back[v], in.Microbatch, clock)
			}
		}
		if in.Op == schedule.W || in.Op == schedule.B {
			e.weights[v] = work{in.Op, Extent{start, clock}}
		}
		if e.s.Spans {
			e.spans[stage] = append(e.spans[stage], trace.Span{
				Op: in.Op, Layer: -1, Chunk: in.Chunk, Microbatch: in.Microbatch, Start: start, End: clock, Waited: waited,
			})
		}
		done++
	}
	e.next[stage] += done
	e.extents[stage].End = clock
	return done
}

// seconds returns the duration of an instruction.
func (e *engine) seconds(stage, v int, in schedule.Instr) float64 {
	c := e.cost(v, in.Microbatch)
	t := 0.0
	switch in.Op {
	case schedule.F:
		t = c.Forward
	case schedule.I:
		t = c.Input
	case schedule.W:
		t = c.Weight
	case schedule.B:
		t = c.Input + c.Weight
	}
	return t * e.slow[stage]
}

func (e *engine) cost(v, microbatch int) *cost.Stage {
	if e.s.PerMicrobatch != nil {
		return &e.s.PerMicrobatch[v][microbatch]
	}
	return &e.s.Costs[v]
}
