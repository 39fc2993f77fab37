package schedule

import (
	"math"
	"math/rand/v2"
	"slices"

	"dynmo/src/random"
)

// Search changes the order of schedule s until the step is shorter. It returns the best
// schedule found, or s itself, and the seconds of its step if no message waits for another.
// o has the options that s was made for; o.Rule does not count. Caps hold as in s. passes
// bounds the orders that are tried. The search ends when a step takes at most enough seconds.
//
// It is a tabu search (Nowicki & Smutnicki 1996 on job shops, with the moves of
// Balas & Vazacopoulos 1998). A longest chain of instructions that wait for each
// other is divided where it leaves a stage. Only a move that brings an instruction to an
// end of such a part can shorten the step. Of these moves the search makes the one that
// leaves the shortest chains through the moved instructions, even if the step gets longer.
// No move that undoes it is made for some time. If no order is better than the best for some
// time, the search goes on from the best after a few moves at random. Deterministic.
func Search(o ListOptions, s Schedule, passes int, enough float64) (Schedule, float64) {
	w := newSearch(newTimes(o, s))
	seconds := w.set()
	best, found := seconds, false
	kept := slices.Clone(w.order)
	last := 0 // round with a new best order, or with random moves
	for w.round = 1; w.round < passes && best > enough; w.round++ {
		w.trace(seconds)
		if next, ok := w.pick(best); ok && w.round-last <= w.patience() {
			seconds = w.take(next)
		} else {
			seconds, last = w.shake(kept), w.round
		}
		if seconds < best*(1-1e-12) {
			best, found, last = seconds, true, w.round
			copy(kept, w.order)
		}
	}
	if !found {
		return s, best
	}
	copy(w.order, kept)
	return w.schedule(), best
}

// search is the state of Search.
type search struct {
	*times
	rnd    *rand.Rand
	open   []int32 // by place: microbatches in flight behind it
	parts  []part  // of the longest chain, from its end to its start
	round  int
	tabu   []int32 // by hash of two instructions: the round until which the first must not come before the second
	window []int32
	starts []float64
}

// part is a section of the longest chain on one stage, from place first to place last.
type part struct{ first, last int }

// move takes the instruction at place from to place to of its list. The instructions between shift
// by one place.
type move struct{ from, to int }

func (m move) back() move { return move{m.to, m.from} }

const (
	// farthest is the most places by which an instruction moves. Farther moves are seldom the best,
	// and their estimates are poor.
	farthest = 8
	// tabus is the size of the table of moves that must not be undone, a power of
	// two. Moves that share an entry are forbidden together.
	tabus = 1 << 12
)

func newSearch(t *times) *search {
	s := &search{times: t, rnd: random.Keyed(uint64(len(t.order))), open: make([]int32, len(t.order)), tabu: make([]int32, tabus), window: make([]int32, farthest+1), starts: make([]float64, farthest+1)}
	s.count(0, len(t.order))
	return s
}

// take makes a move, and returns the seconds of the step after it.
func (s *search) take(m move) (seconds float64) {
	s.apply(m)
	if seconds = s.set(); math.IsInf(seconds, 1) { // a circle, which legal overlooks for instructions of no duration
		s.apply(m.back())
		seconds = s.set()
	}
	return seconds
}

// count counts the microbatches in flight behind each place from first to the end.
func (s *search) count(first, end int) {
	open := s.before(first)
	for at := first; at < end; at++ {
		switch s.kinds[s.kind[s.order[at]]].op {
		case F:
			open++
		case W:
			open--
		}
		s.open[at] = open
	}
}

// before returns how many microbatches are in flight before a place.
func (s *search) before(at int) int32 {
	if at%s.length == 0 {
		return 0
	}
	return s.open[at-1]
}

// trace finds the longest chain, and divides it into parts.
func (s *search) trace(seconds float64) {
	s.parts = s.parts[:0]
	at := -1
	for stage, clock := range s.clock {
		if clock-s.o.Dispatch == seconds {
			at = (stage+1)*s.length - 1
			break
		}
	}
	for last := at; ; {
		number := s.order[at]
		if at%s.length > 0 && s.start[number] == s.free(at) {
			at--
			continue
		}
		s.parts = append(s.parts, part{at, last})
		k := &s.kinds[s.kind[number]]
		if k.from == 0 || s.start[number] == 0 {
			return
		}
		at = int(s.at[number+k.from])
		last = at
	}
}

// pick returns the best move. ok is false if there is none.
func (s *search) pick(best float64) (chosen move, ok bool) {
	least, oldest := math.Inf(1), int32(math.MaxInt32)
	try := func(m move) {
		if !s.legal(m) {
			return
		}
		seconds, until := s.estimate(m), s.forbidden(m)
		if int(until) <= s.round || seconds < best*(1-1e-12) {
			until = 0
		}
		if until < oldest || until == oldest && seconds < least {
			chosen, ok, oldest, least = m, true, until, seconds
		}
	}
	for i, p := range s.parts {
		if i < len(s.parts)-1 { // moving an instruction before a part helps only at the chain's start
			for at := p.first + 1; at <= min(p.last, p.first+farthest); at++ {
				try(move{at, p.first})
			}
		}
		if i > 0 {
			for at := max(p.first, p.last-farthest); at < p.last; at++ {
				if i < len(s.parts)-1 && at+1 == p.last && at == p.first {
					continue // the same as above
				}
				try(move{at, p.last})
			}
		}
	}
	return chosen, ok
}

// legal reports whether a move keeps the order of ops, the order of W and the cap. As far as
// durations show, it also rejects moves after which stages wait for each other in a circle.
func (s *search) legal(m move) bool {
	moved := s.order[m.from]
	k := &s.kinds[s.kind[moved]]
	limit := int32(math.MaxInt32)
	if s.o.InFlight != nil {
		limit = int32(s.o.InFlight[m.from/s.length])
	}
	if m.from < m.to {
		for at := m.from + 1; at <= m.to; at++ {
			other := s.order[at]
			if s.ordered(moved, other) || k.op == W && s.open[at] >= limit ||
				k.to != 0 && s.start[other] > s.end(moved+k.to) {
				return false
			}
		}
		return true
	}
	for at := m.to; at < m.from; at++ {
		other := s.order[at]
		if s.ordered(other, moved) || k.op == F && (s.open[at] >= limit || s.before(at) >= limit) ||
			k.from != 0 && s.start[moved+k.from] > s.end(other) {
			return false
		}
	}
	return true
}

// ordered reports whether first must stay before second in the list of their stage.
func (s *search) ordered(first, second int32) bool {
	a, b := s.kind[first], s.kind[second]
	if a == b {
		return true
	}
	if s.o.OfChunk != nil && a == b+2 && s.kinds[a].op == W { // W, and an F of the same chunk that needs its room
		return int(second)-int(b)*s.o.Microbatches-(int(first)-int(a)*s.o.Microbatches) == s.o.OfChunk[a/3]
	}
	if int(first)-int(a)*s.o.Microbatches != int(second)-int(b)*s.o.Microbatches {
		return false
	}
	if s.kinds[a].op == W {
		return false // no other instruction needs it
	}
	// Work of two chunks for one microbatch has one order. W needs only its own I.
	return s.kinds[b].op != W || s.kinds[a].op == F || a/3 >= b/3
}

// estimate returns the length of the longest chain through the instructions that a move shifts.
func (s *search) estimate(m move) (seconds float64) {
	lo, hi := min(m.from, m.to), max(m.from, m.to)
	window := s.window[:hi-lo+1]
	copy(window, s.order[lo:hi+1])
	rotate(window, m)
	clock := s.free(lo)
	for i, number := range window {
		clock = max(clock, s.arrives(number))
		s.starts[i] = clock
		clock += s.kinds[s.kind[number]].seconds + s.o.Dispatch
	}
	behind := s.behind(hi)
	for i := len(window) - 1; i >= 0; i-- {
		number := window[i]
		own := s.kinds[s.kind[number]].seconds
		tail := max(behind, s.needed(number))
		seconds = max(seconds, s.starts[i]+own+tail)
		behind = s.o.Dispatch + own + tail
	}
	return seconds
}

// rotate makes a move in window, the part of a list between the move's two places.
func rotate(window []int32, m move) {
	last := len(window) - 1
	if m.from < m.to {
		moved := window[0]
		copy(window, window[1:])
		window[last] = moved
		return
	}
	moved := window[last]
	copy(window[1:], window[:last])
	window[0] = moved
}

// apply makes a move, and forbids its reversal for some rounds.
func (s *search) apply(m move) {
	lo, hi := min(m.from, m.to), max(m.from, m.to)
	moved := s.order[m.from]
	until := int32(s.round + tenure + s.round%tenure)
	for at := lo; at <= hi; at++ {
		if other := s.order[at]; m.from < m.to {
			s.tabu[entry(moved, other)] = until
		} else {
			s.tabu[entry(other, moved)] = until
		}
	}
	rotate(s.order[lo:hi+1], m)
	for at := lo; at <= hi; at++ {
		s.at[s.order[at]] = int32(at)
	}
	s.count(lo, hi+1)
}

// forbidden returns the round until which a move is forbidden.
func (s *search) forbidden(m move) (until int32) {
	moved := s.order[m.from]
	for at := min(m.from, m.to); at <= max(m.from, m.to); at++ {
		if other := s.order[at]; m.from < m.to {
			until = max(until, s.tabu[entry(other, moved)])
		} else {
			until = max(until, s.tabu[entry(moved, other)])
		}
	}
	return until
}

// tenure is the least number of rounds for which a move is not undone.
const tenure = 8

// entry returns the index of two instructions in the table of tabus.
func entry(first, second int32) uint32 {
	return (uint32(first)*0x9E3779B1 ^ uint32(second)*0x85EBCA77) >> 20 & (tabus - 1)
}

const (
	// shakes is how many random moves lead away from the best order.
	shakes = 6
	// shakeTries is the most random draws for one legal move.
	shakeTries = 20
	// leastPatience is the least number of rounds that a search goes on without a better order.
	leastPatience = 32
)

// patience returns how many rounds the search goes on without a better order. In a long step many
// moves of little effect may lead to a better one.
func (s *search) patience() int { return max(leastPatience, len(s.order)/4) }

// shake restores an order and makes some random moves in it. It returns the seconds of the step
// after them.
func (s *search) shake(order []int32) (seconds float64) {
	copy(s.order, order)
	for at, number := range order {
		s.at[number] = int32(at)
	}
	s.count(0, len(order))
	seconds = s.set()
	for made, tries := 0, 0; made < shakes && tries < shakes*shakeTries; tries++ {
		m := move{s.rnd.IntN(len(order)), 1 + s.rnd.IntN(farthest/2)}
		if m.to += m.from; m.to >= len(order) || m.to/s.length != m.from/s.length {
			continue
		}
		if s.rnd.IntN(2) == 0 {
			m = m.back()
		}
		if s.legal(m) {
			seconds = s.take(m)
			made++
		}
	}
	return seconds
}
