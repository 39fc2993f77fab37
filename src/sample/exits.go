package sample

import (
	"math"

	"dynmo/src/model"
)

// leaving is an extension of a model in which tokens may leave behind blocks.
type leaving interface {
	model.Extension
	// Depths returns the number of blocks before each exit, ascending.
	Depths() []int
	// Surety returns the confidence of an exit in a token. Depending on the kind it uses one of
	// three inputs: the token's states before and after the block in front of the exit; the
	// classifier's logits (none without a classifier); the exit's logits.
	Surety(front, behind, verdict []float32, logits func() []float32) float64
	// Notes describes how training treated tokens that left.
	Notes() []string
}

// exit has the weights of an exit.
type exit struct {
	depth      int // blocks before it
	norm       norm
	head       []float32 // (V, C)
	classifier linear    // (2, C), or absent
}

// Leaving is the rule by which tokens leave: at the first exit whose confidence is above the exit's
// threshold λ. With a decay τ the threshold of the t-th of N generated tokens is
//
//	min(1, max(0, 0.9·λ + 0.1·exp(-τ·t/N)))   (Schuster et al. 2022, equation 5)
//
// A token that left continues as a state. Later blocks compute keys and values from the state, for
// later tokens (section 3.5).
//
// Departs: tokens of a prompt leave too, with t = 0. CALM's prompts go through an encoder.
type Leaving struct {
	Thresholds []float64 // by exit
	Decay      float64   // 0: thresholds are constant
}

// HasExits reports whether tokens of a model may leave.
func HasExits(c model.Config) bool { return model.KindOf[leaving](c) != nil }

// threshold returns the threshold of exit `number` for a token.
func (s *Session) threshold(number int, token int) float64 {
	l := s.leaving.Thresholds[number]
	if s.leaving.Decay == 0 {
		return l
	}
	t := max(0, s.first+s.n+token-s.prompt)
	return min(1, max(0, 0.9*l+0.1*math.Exp(-s.leaving.Decay*float64(t)/float64(s.added))))
}

// keepFront copies the states of the computed tokens before a block, if an exit follows the block.
func (s *Session) keepFront(block int) {
	if s.exitBehind(block) >= 0 {
		s.front = append(s.front[:0], s.x[:s.live*s.m.Config.Hidden]...)
	}
}

// exitBehind returns the number of the exit behind a block. It is negative if there is none, or if
// no token may leave.
func (s *Session) exitBehind(block int) int {
	if s.leaving != nil {
		for i, e := range s.m.exits {
			if e.depth == block+1 {
				return i
			}
		}
	}
	return -1
}

// leave lets tokens leave at the exit behind a block, if there is one. Rows of tokens that left
// follow the rows of the others. If the last token leaves, its logits are computed here.
func (s *Session) leave(block, n int) {
	number := s.exitBehind(block)
	if number < 0 || s.live == 0 {
		return
	}
	m, e, c := s.m, &s.m.exits[number], s.m.Config.Hidden
	verdicts := make([]float32, 2*s.live)
	if e.classifier.weight != nil {
		m.multiply(verdicts, s.x[:s.live*c], e.classifier, s.live, c, 2)
	}
	var goOn, gone []int
	projected := -1 // token whose logits are computed; -1: none
	for i := range s.live {
		row := s.x[i*c:][:c]
		logits := func() []float32 {
			if projected != i {
				s.project(row, e.norm, e.head)
				projected = i
			}
			return s.logits
		}
		if sure := m.leaving.Surety(s.front[i*c:][:c], row, verdicts[2*i:][:2], logits); sure <= s.threshold(number, s.slot[i]) {
			goOn = append(goOn, i)
			continue
		}
		gone = append(gone, i)
		if s.slot[i] == n-1 {
			logits()
			copy(s.left, s.logits)
			s.depth -= m.Config.Blocks - e.depth
		}
	}
	if len(gone) == 0 {
		return
	}
	states, at, slot := append([]float32(nil), s.x[:s.live*c]...), append([]int32(nil), s.at[:s.live]...), append([]int(nil), s.slot[:s.live]...)
	for to, from := range append(goOn, gone...) {
		copy(s.x[to*c:][:c], states[from*c:])
		s.at[to], s.slot[to] = at[from], slot[from]
	}
	s.live = len(goOn)
}
