package schedule

import (
	"math"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/partition"
)

// ListOptions describes the step that List makes a schedule for.
type ListOptions struct {
	Map          partition.Map // from virtual stages to stages; zero: one virtual stage on each
	Costs        []cost.Stage  // by virtual stage
	Message      []float64     // seconds from virtual stage v to v+1, and back, if they lie on two stages; nil: messages are free
	Dispatch     float64       // least seconds that a stage needs from one instruction to the next
	Microbatches int
	InFlight     []int // by stage: most microbatches of its chunks between F and W, at least one for each chunk; nil: no cap
	OfChunk      []int // by virtual stage: most microbatches between F and W, at least one; nil: no cap
	Rule
}

// Rule is how a stage of a list chooses among F, I and W. No single rule is the
// best for all costs and caps.
type Rule struct {
	Theta        float64 // in [0,1]: the share of a W that must be over before a known F or I can start
	ForwardFirst bool    // of F and I that can start at the same time, F is first
	Patience     float64 // a stage waits for an I instead of an F up to this share of the F
	Turns        bool    // F and I alternate: the stage waits with patience for F after an I, and for I after an F
	Drain        bool    // W comes before I if it lets an F start that only the cap stops
	Calm         bool    // before a chunk's first I, only F that end before that I could start at the earliest
	Rounds       bool    // all stages take turns in rounds (see runRounds); of the other fields only Fill counts
	Fill         bool    // W comes first also if the stage would otherwise become the one that has waited longest
}

// List returns a schedule made for costs, by an event-driven list scheduler. Every stage
// proposes an instruction. The proposal that starts first is added to its list, again and
// again. A stage proposes F or I, whichever can start first: I on ties, F while the cap
// allows. When both must wait the stage proposes W, if at least Theta of W is over when they
// start. A stage takes each kind of a chunk in ascending order of microbatches. It knows the
// instructions that its neighbours have begun, not their later ones.
//
// Deterministic; O(instructions · log stages). It always comes to an end. Take the oldest
// microbatch that is not finished, and its next instruction. All earlier microbatches are
// finished, so the chunk is ready and empty. I and W need no room. An F of chunk c needs room.
// The room is free, because a stage starts an F of a chunk only if one more microbatch may
// start in each later chunk. A calm rule never delays an F of the first microbatch, nor the
// others once the first microbatch is finished.
func List(o ListOptions) Schedule {
	l := NewLister(o)
	l.Run(o.Rule)
	return l.Schedule()
}

// Lister makes lists for the same costs by several rules.
type Lister struct {
	o      ListOptions
	rule   Rule
	chunks int
	places []place
	stages []listed
	lists  []Instr   // of all stages, one behind the other
	ready  []float64 // by virtual stage, F or I, and microbatch: when its input arrives
	first  tournament

	longest float64 // the largest waited of the stages
}

// place is the state of a virtual stage.
type place struct {
	stage, chunk int
	cap          int
	cost         [W + 1]float64
	next         [W + 1]int // by op: the next microbatch
	known        [W + 1]int // by op: how many F and I have a known start
	ready        [W + 1][]float64
	calm         float64 // the earliest start of its first I
	onward, back float64 // seconds of a message to the virtual stage behind and the one before
}

// listed is the state of a stage.
type listed struct {
	places []*place // by chunk
	cap    int
	open   int     // microbatches between F and W
	clock  float64 // when the stage is free
	end    float64 // of its last instruction
	last   Op      // whether F or I was done last
	list   []Instr
	waited float64 // in rounds: seconds of idle time
	turn   *place  // in rounds: the chunk whose I comes next

	op    Op // proposed op
	chunk int
	start float64 // of the proposed op; +Inf: no known instruction can start
}

// NewLister returns a lister for options. It ignores o.Rule.
func NewLister(o ListOptions) *Lister {
	if o.Map.Stages == 0 {
		o.Map = partition.Line(len(o.Costs))
	}
	n, all := o.Map.Virtual(), 3*o.Map.Chunks*o.Microbatches
	l := &Lister{
		o: o, chunks: o.Map.Chunks, places: make([]place, n), stages: make([]listed, o.Map.Stages),
		lists: make([]Instr, o.Map.Stages*all), ready: make([]float64, 2*n*o.Microbatches), first: newTournament(o.Map.Stages),
	}
	pointers := make([]*place, n)
	for s := range l.stages {
		at := &l.stages[s]
		at.list = l.lists[s*all : s*all : (s+1)*all]
		if at.cap = o.Map.Chunks * o.Microbatches; o.InFlight != nil {
			at.cap = o.InFlight[s]
		}
		at.places, pointers = pointers[:l.chunks], pointers[l.chunks:]
	}
	for v := range l.places {
		at := &l.places[v]
		at.stage, at.chunk, at.cap = o.Map.Stage(v), o.Map.Chunk(v), o.Microbatches
		if o.OfChunk != nil {
			at.cap = o.OfChunk[v]
		}
		l.stages[at.stage].places[at.chunk] = at
		c := o.Costs[v]
		at.cost = [W + 1]float64{F: c.Forward, I: c.Input, W: c.Weight}
		at.ready[F], at.ready[I] = l.ready[2*v*o.Microbatches:][:o.Microbatches], l.ready[(2*v+1)*o.Microbatches:][:o.Microbatches]
		at.onward, at.back = o.message(v), o.message(v-1)
	}
	l.setCalm()
	return l
}

// setCalm sets, for each chunk, the time at which the first microbatch's I can start at the
// earliest.
func (l *Lister) setCalm() {
	clock := 0.0
	for _, at := range l.places {
		clock += at.cost[F] + at.onward
	}
	for v := len(l.places) - 1; v >= 0; v-- {
		at := &l.places[v]
		at.calm = clock
		clock += at.cost[I] + at.back
	}
}

// message returns the seconds of a message between virtual stages v and v+1.
func (o *ListOptions) message(v int) float64 {
	if o.Message == nil || v < 0 || v+1 >= o.Map.Virtual() || o.Map.Stage(v) == o.Map.Stage(v+1) {
		return 0
	}
	return o.Message[v]
}

// Least returns seconds that no schedule can beat. The first microbatch reaches a stage, and then
// the stage does all its work without a wait. Unlike sim.LowerBound it counts messages and
// dispatch.
func (o ListOptions) Least() (seconds float64) {
	if o.Map.Stages == 0 {
		o.Map = partition.Line(len(o.Costs))
	}
	head, m := 0.0, float64(o.Microbatches)
	for v := range o.Map.Stages { // v is the first virtual stage of every stage
		work := 2*m*float64(o.Map.Chunks)*o.Dispatch - o.Dispatch // of F and undivided backwards
		for chunk := range o.Map.Chunks {
			work += m * o.Costs[o.Map.Place(v, chunk)].Seconds()
		}
		seconds = max(seconds, head+work)
		head += o.Costs[v].Forward + o.message(v)
	}
	return seconds
}

// Run makes the lists by a rule. It returns the seconds of the step if no message waits for
// another.
func (l *Lister) Run(rule Rule) (seconds float64) {
	l.rule = rule
	if rule.Rounds {
		return l.runRounds()
	}
	l.clear()
	for s := range l.stages {
		l.choose(s)
	}
	for range len(l.lists) {
		l.begin(l.first.winner())
	}
	return l.seconds()
}

// clear forgets the lists of the last run.
func (l *Lister) clear() {
	l.longest = 0
	for v := range l.places {
		at := &l.places[v]
		at.next, at.known = [W + 1]int{}, [W + 1]int{}
	}
	l.places[0].known[F] = l.o.Microbatches
	clear(l.places[0].ready[F])
	for s := range l.stages {
		at := &l.stages[s]
		at.open, at.clock, at.end, at.last, at.list, at.waited = 0, 0, 0, F, at.list[:0], 0
	}
}

// seconds returns the end of the last instruction of all stages.
func (l *Lister) seconds() (seconds float64) {
	for s := range l.stages {
		seconds = max(seconds, l.stages[s].end)
	}
	return seconds
}

// Schedule returns the lists that the last Run made.
func (l *Lister) Schedule() Schedule {
	s := Schedule{Kind: KindList, Map: l.o.Map, Microbatches: l.o.Microbatches, Lists: make([][]Instr, len(l.stages))}
	all := slices.Clone(l.lists)
	n := len(all) / len(l.stages)
	for stage := range s.Lists {
		s.Lists[stage], all = all[:n:n], all[n:]
	}
	return s
}

// choose decides which instruction the stage proposes, and its start.
func (l *Lister) choose(stage int) {
	at := &l.stages[stage]
	forward, input := math.Inf(1), math.Inf(1)
	var f, i *place
	held := false                        // set if only the cap stops an F
	for c := l.chunks - 1; c >= 0; c-- { // chunks that are later in the chain come first
		p := at.places[c]
		if m := p.next[F]; m < p.known[F] {
			if start := max(at.clock, p.ready[F][m]); at.open+l.chunks-c > at.cap || m-p.next[W] >= p.cap {
				held = held || start == at.clock
			} else if start < forward && (!l.rule.Calm || m == 0 || p.next[I] > 0 || start+p.cost[F] <= p.calm) {
				forward, f = start, p
			}
		}
		if m := p.next[I]; m < p.known[I] {
			if start := max(at.clock, p.ready[I][m]); start < input {
				input, i = start, p
			}
		}
	}
	w := at.nextW()
	var chosen *place
	at.op, at.start, chosen = I, input, i
	if f != nil {
		late := l.rule.Patience * f.cost[F]
		if l.rule.Turns && at.last == I && i != nil {
			late = -l.rule.Patience * i.cost[I]
		}
		if forward+late < input || l.rule.ForwardFirst && forward+late == input {
			at.op, at.start, chosen = F, forward, f
		}
	}
	if w != nil && (at.clock+l.rule.Theta*w.cost[W] <= at.start && at.start > at.clock || l.rule.Drain && held) {
		at.op, at.start, chosen = W, at.clock, w
	}
	if chosen != nil {
		at.chunk = chosen.chunk
	}
	// Of instructions that start at the same time W is last. By then the instructions that would
	// wait for W are known.
	l.first.set(stage, at.start, at.op)
}

// nextW returns the chunk with the oldest W that can be done; nil: there is none.
func (at *listed) nextW() (w *place) {
	for c := len(at.places) - 1; c >= 0; c-- {
		if p := at.places[c]; p.next[W] < p.next[I] && (w == nil || p.next[W] < w.next[W]) {
			w = p
		}
	}
	return w
}

// begin carries out the instruction that the stage has proposed.
func (l *Lister) begin(stage int) {
	at := &l.stages[stage]
	told := l.do(at.places[at.chunk], at.op, at.start)
	l.choose(stage)
	if told != stage {
		l.choose(told)
	}
}

// do carries out the next instruction of an op. It returns the stage that can now plan the
// instruction's successor.
func (l *Lister) do(p *place, op Op, start float64) (told int) {
	at := &l.stages[p.stage]
	m := p.next[op]
	p.next[op]++
	at.list = append(at.list, Instr{op, m, p.chunk})
	at.end = start + p.cost[op]
	at.clock = at.end + l.o.Dispatch
	if op != W {
		at.last = op
	}
	v := l.o.Map.Place(p.stage, p.chunk)
	switch {
	case op == F:
		at.open++
		if v+1 < len(l.places) {
			return l.pass(v+1, F, m, at.end+p.onward)
		}
		return l.pass(v, I, m, at.end)
	case op == W:
		at.open--
	case v > 0:
		return l.pass(v-1, I, m, at.end+p.back)
	}
	return p.stage
}

// pass records when a virtual stage can start an instruction. It returns the stage of v.
func (l *Lister) pass(v int, op Op, microbatch int, ready float64) (stage int) {
	p := &l.places[v]
	p.ready[op][microbatch], p.known[op] = ready, microbatch+1
	return p.stage
}

// tournament finds the stage that starts first. Ties go to F before I before W, then to the lowest
// stage. It is a binary tree: each node has the better of its two children.
type tournament struct {
	leaves int // a power of two
	start  []float64
	op     []Op
	best   []int // by node, from 1; the leaves are the last
}

func newTournament(stages int) tournament {
	t := tournament{leaves: 1}
	for t.leaves < stages {
		t.leaves *= 2
	}
	t.start, t.op, t.best = make([]float64, t.leaves), make([]Op, t.leaves), make([]int, 2*t.leaves)
	for s := range t.leaves {
		t.start[s], t.best[t.leaves+s] = math.Inf(1), s
	}
	for node := t.leaves - 1; node > 0; node-- {
		t.best[node] = t.best[2*node]
	}
	return t
}

// set records the start and the op that a stage proposes.
func (t *tournament) set(stage int, start float64, op Op) {
	t.start[stage], t.op[stage] = start, op
	for node := (t.leaves + stage) / 2; node > 0; node /= 2 {
		a, b := t.best[2*node], t.best[2*node+1]
		if t.start[b] < t.start[a] || t.start[b] == t.start[a] && t.op[b] < t.op[a] {
			a = b
		}
		if t.best[node] == a && a != stage {
			return // nothing has changed for the nodes above
		}
		t.best[node] = a
	}
}

// winner returns the stage that starts first.
func (t *tournament) winner() int { return t.best[1] }
