package sample

import (
	"fmt"
	"math"

	"dynmo/src/model"
	"dynmo/src/tensor"
)

// Session is a text that a model reads token by token.
type Session struct {
	m    *Model
	text model.Text
	n    int // tokens so far

	forward *forward  // the last one
	depth   int       // blocks that computed the last token
	logits  []float32 // of the last token

	leaving              *Leaving // nil: no token leaves
	prompt, added, first int      // tokens of the text: in its prompt, to add, and before the session's first
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

// mostTokens is the most tokens that one forward computes. A product of so many is fast, and their
// activations are small beside the weights.
const mostTokens = 128

// NewSession returns a session without tokens. It has room for `positions` positions, or the
// model's sequence if that is less. leaving is the rule by which tokens leave; nil: none leaves.
// Close frees its memory.
func (m *Model) NewSession(positions int, leaving *Leaving) *Session {
	text := model.Text{Room: min(positions, m.Config.Sequence), Threads: m.threads}
	return &Session{m: m, text: text, leaving: leaving, logits: make([]float32, m.Config.Vocab)}
}

// Close frees the session's memory.
func (s *Session) Close() {
	if s.forward != nil {
		s.forward.heap.Free()
		s.forward.x.Close()
		s.forward = nil
	}
}

// Len returns how many tokens the session has been fed.
func (s *Session) Len() int { return s.n }

// Reset forgets all tokens.
func (s *Session) Reset() { s.n = 0 }

// Feed continues with tokens, at least one, and returns the logits (V) of the next token, which are
// valid until the next call. The last token has a forward of its own, because only its logits are
// computed. Errors are those of memory. Feed panics if the session gets longer than its room, or if a
// token is outside the vocabulary.
func (s *Session) Feed(tokens ...int32) ([]float32, error) {
	if len(tokens) < 1 || s.n+len(tokens) > s.text.Room {
		panic("sample: no tokens, or more than there is room for")
	}
	most := mostTokens
	if s.first > 0 && s.leaving != nil && s.leaving.Decay != 0 {
		most = 1 // each token has thresholds of its own
	}
	for len(tokens) > 0 {
		n := min(max(1, len(tokens)-1), most)
		if err := s.step(tokens[:n]); err != nil {
			return nil, fmt.Errorf("sample: %w", err)
		}
		tokens = tokens[n:]
	}
	return s.logits, nil
}

// step runs tokens through the model. It sets logits and depth if there is one.
func (s *Session) step(tokens []int32) error {
	if s.forward == nil || s.forward.x.N() != len(tokens) {
		s.Close()
		if err := s.open(len(tokens)); err != nil {
			s.Close()
			return err
		}
	}
	exit := 0
	for _, l := range s.m.stage.Layers {
		if l.Kind == model.Exit && s.leaving != nil {
			l.Tune(s.threshold(exit))
			exit++
		}
	}
	err := s.run(tokens)
	s.n += len(tokens)
	return err
}

// threshold returns the threshold of an exit for the next token.
func (s *Session) threshold(exit int) float64 {
	l := s.leaving.Thresholds[exit]
	if s.leaving.Decay == 0 {
		return l
	}
	t := max(0, s.first+s.n-s.prompt)
	return min(1, max(0, 0.9*l+0.1*math.Exp(-s.leaving.Decay*float64(t)/float64(s.added))))
}

// forward has the memory for a forward of a number of tokens.
type forward struct {
	x     *model.Exec
	works []model.Work  // by layer
	saved [2]tensor.Mem // of a layer, and of the layer before
	heap  model.Heap
}

// open sets forward to one of a number of tokens.
func (s *Session) open(tokens int) error {
	m := s.m
	x := &model.Exec{
		Device: m.device, Backend: m.kernels, Stream: m.device.NewStream(), B: 1, T: tokens, Scale: 1,
		Validates: true, Stays: s.leaving == nil, Text: &s.text,
	}
	f := &forward{x: x, heap: model.Heap{Device: m.device}}
	s.forward = f
	if err := x.Reserve(m.Config); err != nil {
		return err
	}
	most := int64(0)
	for _, l := range m.stage.Layers {
		if l.Kind == model.Head && tokens > 1 {
			break
		}
		f.works, most = append(f.works, l.NewWork(x, &f.heap)), max(most, l.Sizes(x).Kept)
	}
	for i := range f.saved {
		f.saved[i] = f.heap.OnDevice(most)
	}
	return f.heap.Err
}

// run runs tokens through the layers. A token that leaves at an exit has its logits there; those of
// other tokens are the head's. Of several tokens none has logits.
func (s *Session) run(tokens []int32) error {
	x, inp := s.forward.x, tensor.Mem{}
	x.Continue(s.n)
	s.depth = 0
	b := &x.Full
	for i, work := range s.forward.works {
		l, saved := s.m.stage.Layers[i], model.Saved{Kept: s.forward.saved[i%2]}
		if l.Kind == model.Head && b.Tokens == 0 {
			return nil
		}
		if work != nil {
			b = work.Enter(b)
		}
		l.Feed(x, b, saved, tokens, tokens)
		if err := l.Forward(x, b, saved, inp); err != nil {
			return fmt.Errorf("layer %d (%s): %w", l.ID, l.Name, err)
		}
		switch {
		case len(tokens) > 1:
		case l.Kind == model.Block:
			s.depth += b.Worked()
		case l.Kind == model.Head, l.Kind == model.Exit && b.Leaves().Queries < b.Queries:
			copy(s.logits, l.Logits(x, b, saved))
		}
		inp, b = l.Output(x, b, saved), b.Leaves()
	}
	return nil
}
