package schedule

// Peak is the most that a virtual stage holds at a time.
type Peak struct {
	InFlight int // microbatches between their F and their W: activations
	Between  int // microbatches between their I and their W, at least 1
	// Recomputed is how many microbatches have the memory at a time that layers compute again:
	// those between their I and their W, and the one whose F is under way. At least 1.
	Recomputed int
	Outgoing   int // gradients on their way to another stage, at least LeastOutgoing; 0 where none go

	Before int // chunks of its stage whose gradients a step completes before its own
}

// LeastOutgoing is how many outgoing gradients a virtual stage has buffers for
// at least: one travels while the next is computed.
const LeastOutgoing = 2

// Peaks returns the peak of every virtual stage.
func (s Schedule) Peaks() []Peak {
	peaks := s.held()
	s.outgoing(peaks)
	return peaks
}

// InFlight returns the most microbatches in flight on every virtual stage.
func (s Schedule) InFlight() []int {
	var list []int
	for _, p := range s.held() {
		list = append(list, p.InFlight)
	}
	return list
}

// held returns the peaks without what is on its way.
func (s Schedule) held() []Peak {
	peaks := make([]Peak, s.Map.Virtual())
	now := make([]Peak, s.Map.Virtual())
	for v := range peaks {
		peaks[v].Between, peaks[v].Recomputed = 1, 1
	}
	for stage, list := range s.Lists {
		for _, in := range list {
			v := s.Map.Place(stage, in.Chunk)
			n, most := &now[v], &peaks[v]
			switch in.Op {
			case F:
				n.InFlight++
				most.Recomputed = max(most.Recomputed, n.Between+1)
			case I, B:
				n.Between++
				most.Recomputed = max(most.Recomputed, n.Between)
			}
			most.InFlight, most.Between = max(most.InFlight, n.InFlight), max(most.Between, n.Between)
			if in.Op == W || in.Op == B {
				n.InFlight--
				n.Between--
			}
		}
		for before, chunk := range s.Completed(stage) {
			peaks[s.Map.Place(stage, chunk)].Before = before
		}
	}
	return peaks
}

// outgoing adds to peaks how many buffers for outgoing gradients every virtual
// stage needs so that no stages wait for each other in a circle. A backward for
// inputs begins once the gradient in the oldest buffer has been taken. The
// receiver takes gradients in the order of its own backwards: one more than are
// ever between their two backwards, and another with every W. Where stages have
// one chunk and one order LeastOutgoing will do: a stage that waits has nothing
// to wait for but a stage nearer to the first, which waits for none. Other
// schedules are legal, and may need more (see grow).
func (s Schedule) outgoing(peaks []Peak) {
	for v := 1; v < len(peaks); v++ {
		if s.Map.Stage(v-1) != s.Map.Stage(v) {
			peaks[v].Outgoing = LeastOutgoing
		}
	}
	if !s.Ascending() {
		s.grow(peaks)
	}
}

// grow carries out the lists, and gives a virtual stage that would wait for ever one
// more buffer.
func (s Schedule) grow(peaks []Peak) {
	sent, place := s.gradients()
	run := s.dryRun()
	waits := -1 // a virtual stage that waits for a buffer only
	full := func(v int, in Instr) bool {
		oldest := run.inputs[v] - peaks[v].Outgoing
		if in.Op != I && in.Op != B || peaks[v].Outgoing == 0 || oldest < 0 {
			return false
		}
		taken := peaks[v-1].Between + 1 + run.weights[v-1]
		if place[v-1][sent[v][oldest]] < taken {
			return false
		}
		waits = v
		return true
	}
	for {
		waits = -1
		switch {
		case run.pass(full):
		case waits < 0:
			return
		default:
			peaks[waits].Outgoing++
		}
	}
}

// gradients returns, by virtual stage, the microbatches in the order of their
// backwards for inputs, and by microbatch its place in that order.
func (s Schedule) gradients() (sent, place [][]int) {
	n := s.Map.Virtual()
	sent, place = make([][]int, n), make([][]int, n)
	for v := range n {
		sent[v], place[v] = make([]int, 0, s.Microbatches), make([]int, s.Microbatches)
	}
	for stage, list := range s.Lists {
		for _, in := range list {
			if in.Op == I || in.Op == B {
				v := s.Map.Place(stage, in.Chunk)
				place[v][in.Microbatch] = len(sent[v])
				sent[v] = append(sent[v], in.Microbatch)
			}
		}
	}
	return sent, place
}
