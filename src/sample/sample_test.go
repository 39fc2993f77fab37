package sample

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/model"
)

// TestChoice: candidates are those of the definition, computed by sorting all tokens.
func TestChoice(t *testing.T) {
	logits := []float32{1, 3, -2, 3, 0, 2.5} // probabilities .05 .37 .00 .37 .02 .19
	for _, c := range []struct {
		name string
		Choice
		want []int32 // tokens that may be drawn
	}{
		{"greedy, the first of equals", Choice{TopP: 1}, []int32{1}},
		{"all", Choice{Temperature: 2, TopP: 1}, []int32{0, 1, 2, 3, 4, 5}},
		{"top 1, the first of equals", Choice{Temperature: 1, TopK: 1, TopP: 1}, []int32{1}},
		{"top 3", Choice{Temperature: 1, TopK: 3, TopP: 1}, []int32{1, 3, 5}},
		{"more than there are", Choice{Temperature: 2, TopK: 9, TopP: 1}, []int32{0, 1, 2, 3, 4, 5}},
		{"nucleus of one", Choice{Temperature: 1, TopP: 0.3}, []int32{1}},
		{"nucleus", Choice{Temperature: 1, TopP: 0.9}, []int32{1, 3, 5}},
		{"nucleus of the top 2", Choice{Temperature: 1, TopK: 2, TopP: 0.6}, []int32{1, 3}},
		{"nucleus of the top 3, whose sum is less", Choice{Temperature: 1, TopK: 3, TopP: 0.75}, []int32{1, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen, chooser := make(map[int32]int), c.New()
			for range 3000 {
				token, err := chooser.Next(logits)
				expect.OK(t, err)
				seen[token]++
			}
			var got []int32
			for token := range int32(len(logits)) {
				if seen[token] > 0 {
					got = append(got, token)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("tokens %v, want %v", got, c.want)
			}
		})
	}
}

// TestChoiceDrawsProbabilities: tokens are drawn with the probabilities softmax(logits /
// temperature).
func TestChoiceDrawsProbabilities(t *testing.T) {
	logits, count := []float32{0, 1, 2}, [3]float64{}
	const n = 20000
	chooser := Choice{Temperature: 0.5, TopP: 1, Seed: 5}.New()
	for range n {
		token, err := chooser.Next(logits)
		expect.OK(t, err)
		count[token]++
	}
	sum := 1 + math.Exp(2) + math.Exp(4)
	for i := range count {
		p := math.Exp(2*float64(i)) / sum
		if d := math.Abs(count[i]/n - p); d > 5*math.Sqrt(p/n) { // five standard deviations
			t.Errorf("token %d: %v of them, want %v", i, count[i]/n, p)
		}
	}
}

func TestChoiceRefusesWhatIsNotFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, logits := range [][]float32{{nan, 1}, {1, nan}, {1, inf}, {-inf, -inf}} {
		for _, temperature := range []float64{0, 1} {
			if token, err := (Choice{Temperature: temperature, TopP: 1}).New().Next(logits); err == nil || !strings.Contains(err.Error(), "not finite") {
				t.Errorf("%v at temperature %v: token %d, error %v", logits, temperature, token, err)
			}
		}
	}
}

// TestGenerateEnds: the end token ends a text, and tokens without text are never chosen. Errors of
// yield and of the context are returned.
func TestGenerateEnds(t *testing.T) {
	m := newTrainer(t, tiny).sampler(t, 1, nil)
	g := Generation{Prompt: []int32{7, 7, 2}, Tokens: 8, Vocab: tiny.Vocab, Choice: Choice{TopP: 1}}
	all := generated(t, m, g, new(int))
	ended := g
	ended.Ends = []int32{int32(tiny.Vocab), all[3]}
	at := slices.Index(all, all[3])
	if got := generated(t, m, ended, new(int)); !slices.Equal(got, all[:at]) {
		t.Errorf("%v, want the beginning of %v before the first %d", got, all, all[3])
	}
	few := g
	few.Vocab = 5
	if got := generated(t, m, few, new(int)); len(got) != 8 || slices.Max(got) > 4 {
		t.Errorf("%v, want 8 tokens below 5", got)
	}
	enough := errors.New("enough")
	ctx, stop := context.WithCancelCause(t.Context())
	if err := m.Generate(ctx, g, func(int32) error { return enough }, func() {}); err != enough {
		t.Errorf("error %v of yield", err)
	}
	stop(enough)
	if err := m.Generate(ctx, g, func(int32) error { return nil }, func() {}); err != enough {
		t.Errorf("error %v of the context", err)
	}
}

func TestNewTellsAnErrorOfReading(t *testing.T) {
	torn := errors.New("torn")
	if _, err := New(tiny, 2, nil, func(w model.Weight) ([]float32, error) {
		if w.Name == "block.1/up.bias" {
			return nil, torn
		}
		return make([]float32, w.Bytes()/4), nil
	}); err != torn {
		t.Errorf("error %v", err)
	}
}

func TestTokenBytes(t *testing.T) {
	c := tiny
	all := int64(0)
	for _, w := range c.Weights() {
		all += w.Bytes()
	}
	m := newTrainer(t, c).sampler(t, 1, nil)
	if want := all - int64(4*c.Hidden*(c.Sequence-1)) + int64(4*c.Hidden); m.TokenBytes() != want {
		t.Errorf("%d bytes, want %d", m.TokenBytes(), want)
	}
}
