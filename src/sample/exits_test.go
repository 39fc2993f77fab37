package sample

import (
	"math"
	"slices"
	"strings"
	"testing"

	exits "dynmo/src/kind/exit"
	"dynmo/src/kind/mod"
	"dynmo/src/model"
)

// withExits has a model for every kind of confidence. Exits are behind the first and the third of
// four blocks, and states of tokens that left continue.
var withExits = func() map[string]model.Config {
	list := make(map[string]model.Config)
	for name, threshold := range map[string]float64{"classifier": 0.5, "saturation": 0.3, "softmax": 0.6} {
		for _, shape := range []string{"gpt2", "gpt2, untied", "llama", "llama, scaled", "experts"} {
			c := shapes[shape]
			c.Blocks = 4
			list[shape+", "+name] = c.With(exits.Exits{After: "1,3", Confidence: name, Threshold: threshold, Propagate: true})
		}
	}
	return list
}()

// TestLeavingBesideDepths: a text has the same logits whether it is fed at once or in parts. Every
// second block takes some of the tokens, including tokens that have left. The first token's logits
// are those of training.
func TestLeavingBesideDepths(t *testing.T) {
	c, tokens := shapes["llama"], []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 28, 0}
	c.Blocks = 4
	c = c.With(mod.Depths{Capacity: 0.5, Predictor: true, Threshold: 0.5}).With(exits.Exits{After: "1,2,3", Confidence: "classifier", Threshold: 0.5})
	r := newTrainer(t, c)
	seen := make(map[int]int)
	for first := range tokens {
		text := append(slices.Clone(tokens[first:]), tokens[:first]...)
		m := r.sampler(t, 2, nil)
		session := func() *Session { return m.NewSession(len(text), &Leaving{Thresholds: []float64{0.5, 0.5, 0.5}}) }
		s := session()
		for i, token := range text {
			got := logSoftmax(fed(t, s, token))
			seen[s.depth]++
			same(t, "at once", logSoftmax(fed(t, session(), text[:i+1]...)), got)
			if target := int32(11); i == 0 {
				if want := r.lossOf(t, text[:1], []int32{target}); math.Abs(want+got[target]) > 1e-5 {
					t.Errorf("loss %v, the trainer's %v", -got[target], want)
				}
			}
		}
	}
	if len(seen) < 3 {
		t.Errorf("blocks of each token: %v, want some that leave and some that pass by blocks", seen)
	}
	s := r.sampler(t, 2, nil).NewSession(len(tokens), &Leaving{Thresholds: []float64{-1, 2, 2}})
	for _, token := range tokens {
		if fed(t, s, token); s.depth != 1 {
			t.Errorf("a token that left behind the first block went through %d", s.depth)
		}
	}
}

// TestLeavingIsTheTrainers: the sum of the losses of a text is that of the trainer's forward, whose
// tokens leave at the same exits. The text is fed at once or in parts.
func TestLeavingIsTheTrainers(t *testing.T) {
	tokens := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 28, 0}
	seen := make(map[int]int) // by number of blocks: tokens
	for name, c := range withExits {
		t.Run(name, func(t *testing.T) {
			r, limit := newTrainer(t, c), model.KindOf[exits.Exits](c).Threshold
			m := r.sampler(t, 2, nil)
			for _, target := range []int32{0, 11, 28} {
				for n := 1; n <= len(tokens); n += 4 {
					targets := slices.Repeat([]int32{target}, n)
					want, got := r.lossOf(t, tokens[:n], targets), 0.0
					s := m.NewSession(n, &Leaving{Thresholds: []float64{limit, limit}})
					var last []float64
					for _, token := range tokens[:n] {
						last = logSoftmax(fed(t, s, token))
						got -= last[target]
						seen[s.depth]++
					}
					if math.Abs(got-want) > 1e-4 {
						t.Fatalf("loss of %d tokens %v, the trainer's %v", n, got, want)
					}
					s.Reset()
					same(t, "at once", logSoftmax(fed(t, s, tokens[:n]...)), last)
				}
			}
		})
	}
	if seen[1] == 0 || seen[3] == 0 || seen[4] == 0 {
		t.Errorf("blocks of each token: %v, want some that leave at each exit, and some that do not", seen)
	}
}

// TestLeavingByThresholds: above every confidence the text is that of the model without exits, which
// a forced text repeats; below every confidence tokens leave at the first exit. A decay ends at
// nine tenths of the threshold.
func TestLeavingByThresholds(t *testing.T) {
	c := withExits["llama, classifier"]
	r := newTrainer(t, c)
	m, prompt := r.sampler(t, 1, nil), []int32{7, 7, 2}
	text := func(l *Leaving, forced []int32) ([]int32, Trace) {
		var trace Trace
		g := Generation{Prompt: prompt, Tokens: 25, Vocab: c.Vocab, Choice: Choice{TopP: 1}, Leaving: l, Text: forced, Trace: &trace}
		return generated(t, m, g, new(int)), trace
	}
	full, trace := text(nil, nil)
	if trace.Blocks != 25*4 || !slices.Equal(trace.Best, full) {
		t.Errorf("without leaving %+v of %v", trace, full)
	}
	if never, trace := text(&Leaving{Thresholds: []float64{2, 2}}, nil); !slices.Equal(never, full) || trace.Blocks != 25*4 {
		t.Errorf("above every confidence %v, %d blocks, want %v", never, trace.Blocks, full)
	}
	early, trace := text(&Leaving{Thresholds: []float64{-1, 2}}, nil)
	if trace.Blocks != 25 {
		t.Errorf("below every confidence %d blocks, want 25", trace.Blocks)
	}
	forced, whole := text(nil, early)
	if !slices.Equal(forced, early) || whole.Blocks != 25*4 || slices.Equal(whole.Best, early) {
		t.Errorf("forced %v by %v, found %v", forced, early, whole.Best)
	}
	s := m.NewSession(12, nil)
	s.leaving, s.prompt, s.added = &Leaving{Thresholds: []float64{0.5, 2}, Decay: 4}, 3, 10
	for token, want := range map[int]float64{0: 0.55, 3: 0.55, 8: 0.45 + 0.1*math.Exp(-2)} {
		s.n = token
		if got := s.threshold(0); math.Abs(got-want) > 1e-12 {
			t.Errorf("threshold of token %d is %v, want %v", token, got, want)
		}
	}
	if got := s.threshold(1); got != 1 {
		t.Errorf("threshold 2 decays to %v, want it clipped to 1", got)
	}
}

// TestNotesOfExits: a note says if training used other keys.
func TestNotesOfExits(t *testing.T) {
	for e, want := range map[exits.Exits]bool{{After: "1"}: true, {After: "1", Propagate: true}: false, {After: "1", Weighted: true}: false} {
		notes := Notes(tiny.With(e))
		if got := len(notes) == 1 && strings.Contains(notes[0], "exit.propagate = false"); got != want {
			t.Errorf("%+v: notes %q", e, notes)
		}
	}
}
