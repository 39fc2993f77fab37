package schedule

// Peak is the most memory that a virtual stage needs at a time, in counts of microbatches and
// gradients.
type Peak struct {
	InFlight int // microbatches between their F and their W: activations
	Between  int // microbatches between their I and their W, at least 1
	// Recomputed is the most microbatches whose recomputed activations exist at a time:
	// microbatches between I and W, and the one in F. At least 1.
	Recomputed int
	Outgoing   int // gradients on their way to another stage, at least LeastOutgoing; 0 if no gradient is sent

	Before int // chunks of its stage whose gradients are complete before its own
}

// LeastOutgoing is the least number of buffers for outgoing gradients of a virtual stage. One
// gradient travels while the next is computed.
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

// held returns the peaks without outgoing gradients.
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

// outgoing adds to peaks how many buffers for outgoing gradients every virtual stage needs. With
// fewer buffers stages could wait for each other in a circle. An I begins once the gradient in the
// oldest buffer has been received. The receiver takes gradients in the order of its own backwards.
// If all stages have one chunk and one order, LeastOutgoing is enough: a stage then waits only for
// stages nearer to the first. Other schedules are legal too, and may need more (see grow).
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

// grow carries out the lists. A virtual stage that would wait for ever gets one more buffer.
func (s Schedule) grow(peaks []Peak) {
	sent, place := s.gradients()
	run := s.dryRun()
	waits := -1 // a virtual stage that waits only for a buffer
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

// gradients returns, by virtual stage, the microbatches in the order of their I. place is the
// inverse: the position of each microbatch in that order.
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
