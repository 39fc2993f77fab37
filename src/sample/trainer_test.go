package sample

import (
	"hash/fnv"
	"math"
	"slices"
	"testing"

	"dynmo/src/config"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	kernelcpu "dynmo/src/kernel/cpu"
	"dynmo/src/kernel/ref"
	"dynmo/src/kind/attention"
	exits "dynmo/src/kind/exit"
	"dynmo/src/kind/layerdrop"
	"dynmo/src/kind/mod"
	"dynmo/src/kind/moe"
	"dynmo/src/model"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// tiny has every kind of weight; its sequence is short enough to be filled.
var tiny = model.Config{Blocks: 2, Hidden: 16, Heads: 4, Sequence: 12, Vocab: 29, Tied: true}

// shapes has every kind of model: positions in a table or rotary, plain or scaled; heads with their
// own or shared keys; MLPs and experts.
var shapes = func() map[string]model.Config {
	untied := tiny
	untied.Tied = false
	llama := model.Config{
		Family: "llama", Blocks: 2, Hidden: 24, Heads: 6, KeyValueHeads: 2, Sequence: 12, Vocab: 29,
		Intermediate: 20, NormEps: 1e-5, Rope: model.Rope{Base: 10000},
	}
	scaled := llama
	scaled.KeyValueHeads, scaled.Tied = 6, true
	scaled.Rope = model.Rope{Base: 100, Scaling: model.RopeLlama3, Factor: 4, Low: 1, High: 4, Original: 8}
	mixtral, one, squashed := llama, llama, llama
	mixtral = mixtral.With(moe.Experts{Count: 4, Top: 2})
	one = one.With(moe.Experts{Count: 3, Top: 1})
	squashed = squashed.With(moe.Experts{Count: 4, Top: 2, Scale: 3, Squashed: true})
	allKeyed := mixtral
	allKeyed.KeyValueHeads = 6
	halves := tiny
	halves.HalfGrain = true
	return map[string]model.Config{"gpt2": tiny, "gpt2, untied": untied, "llama": llama, "llama, scaled": scaled, "experts": mixtral, "experts, one": one, "experts, squashed": squashed,
		"buckets, shared keys": tiny.With(attention.Buckets{Count: 4, SharedKeys: true}), "buckets": untied.With(attention.Buckets{Count: 4}),
		"buckets of a llama": scaled.With(attention.Buckets{Count: 2, SharedKeys: true}), "buckets beside experts": allKeyed.With(attention.Buckets{Count: 4, SharedKeys: true}),
		"halves": halves, "layerdrop": tiny.With(layerdrop.Kind.Extension(config.Config{})),
		"keys of queries":     tiny.With(attention.Buckets{Count: 1, SharedKeys: true}),
		"depths, a predictor": tiny.With(mod.Depths{Capacity: 0.5, Predictor: true, Threshold: 0.5}),
		"depths and exits":    llama.With(mod.Depths{Capacity: 0.5, Predictor: true, Threshold: 0.4}).With(exits.Exits{After: "1", Confidence: "classifier", Threshold: 1}),
		"depths of experts":   mixtral.With(mod.Depths{Capacity: 0.5, Predictor: true, Threshold: 0.4}),
		"depths of a llama":   llama.With(mod.Depths{Capacity: 0.5, Predictor: true, Threshold: 0.4, One: true})}
}()

// trainer is a whole model of package model that runs layer by layer on one sequence.
type trainer struct {
	x *model.Exec
	s *model.Stage
}

// newTrainer returns a model with weights and biases so large that logits differ.
func newTrainer(t *testing.T, c model.Config) *trainer {
	t.Helper()
	d := cpu.New(device.NewWall())
	s, err := model.NewStage(c, c.All(), d, tensor.F32)
	expect.OK(t, err)
	t.Cleanup(s.Free)
	for _, l := range s.Layers {
		for _, p := range l.Params() {
			name := fnv.New64a()
			name.Write([]byte(p.Weight))
			draw := random.Keyed(name.Sum64())
			for i := range tensor.Of[float32](p.W) {
				tensor.Of[float32](p.W)[i] = float32(0.4*draw.NormFloat64() + 0.1)
			}
		}
	}
	return &trainer{s: s, x: &model.Exec{Device: d, Backend: ref.New(tensor.F32), Stream: d.NewStream(), Scale: 1, Validates: true}}
}

// sampler returns a Model of this package with the same weights. If k is nil, it has the C kernels if
// this binary has them.
func (r *trainer) sampler(t *testing.T, threads int, k kernel.Backend) *Model {
	t.Helper()
	if k == nil && kernelcpu.Built {
		c, err := kernelcpu.NewForTexts(threads)
		expect.OK(t, err)
		t.Cleanup(func() { expect.OK(t, c.Close()) })
		k = c
	}
	m, err := New(r.s.Config, threads, k, func(w model.Weight) ([]float32, error) {
		for _, l := range r.s.Layers {
			if p := l.Param(w.Name); p != nil {
				return slices.Clone(tensor.Of[float32](p.W)), nil
			}
		}
		t.Errorf("no layer has %s", w.Name)
		return nil, nil
	})
	expect.OK(t, err)
	t.Cleanup(m.Close)
	return m
}

// fed returns the logits behind tokens that a session continues with.
func fed(t *testing.T, s *Session, tokens ...int32) []float32 {
	t.Helper()
	logits, err := s.Feed(tokens...)
	expect.OK(t, err)
	return logits
}

// forward runs all layers. It returns the last layer's saved values and the sum of all losses.
func (r *trainer) forward(t *testing.T, tokens, targets []int32) (saved model.Saved, loss float64) {
	t.Helper()
	r.x.B, r.x.T = 1, len(tokens)
	expect.OK(t, r.x.Reserve(r.s.Config))
	out, b := tensor.Mem{}, &r.x.Full
	for _, l := range r.s.Layers {
		var err error
		saved.Kept, err = r.x.Device.Alloc(l.Sizes(r.x).Kept)
		expect.OK(t, err)
		if w := l.NewWork(r.x, &model.Heap{Device: r.x.Device}); w != nil {
			b = w.Enter(b)
		}
		l.Feed(r.x, b, saved, tokens, targets)
		if b.Tokens == 0 {
			return saved, loss // all tokens have left
		}
		expect.OK(t, l.Forward(r.x, b, saved, out))
		for i, reading := range l.Readings() {
			if reading.Name == model.Loss {
				loss += tensor.Of[float64](l.Reading(r.x, b, saved, i))[0]
			}
		}
		out, b = l.Output(r.x, b, saved), b.Leaves()
	}
	return saved, loss
}

// lossOf returns the sum of the losses of a text's tokens, each at the exit where it leaves.
func (r *trainer) lossOf(t *testing.T, tokens, targets []int32) float64 {
	t.Helper()
	_, loss := r.forward(t, tokens, targets)
	r.x.Close()
	return loss
}

// logProbabilities returns the log softmax of the logits behind every token, by the forward of
// training. The forward leaves softmax - onehot(target) at the beginning of the head's memory.
func (r *trainer) logProbabilities(t *testing.T, tokens []int32) [][]float64 {
	t.Helper()
	saved, _ := r.forward(t, tokens, make([]int32, len(tokens)))
	defer r.x.Close()
	v := r.s.Config.Vocab
	var rows [][]float64
	for i := range tokens {
		gradient := tensor.Of[float32](saved.Kept)[i*v:][:v]
		row, rest := make([]float64, v), 1.0
		for j, g := range gradient[1:] { // entry 0, the target's, is skipped: the difference to 1 would cancel
			row[j+1] = math.Log(float64(g))
			rest -= float64(g)
		}
		row[0] = math.Log(rest)
		rows = append(rows, row)
	}
	return rows
}

// logSoftmax returns log softmax of logits.
func logSoftmax(logits []float32) []float64 {
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v))
	}
	row := make([]float64, len(logits))
	for i, v := range logits {
		row[i] = float64(v) - math.Log(sum)
	}
	return row
}

// tolerance bounds the difference of two rows of log probabilities, over the largest of them. They
// come from float32 sums in different orders. A logit is at the end of
//
//	k = blocks·(6C + inside + T) + 2C
//
// additions, one behind the other: of two norms, four products and attention in each block, and of a
// norm and a product in the head. No k is above that of 4 blocks, C = 24, inside = 96 and T = 12. Each addition rounds by at most 2^-24 of a sum. Errors of both signs add up to a standard
// deviation of at most √k·2^-24 for each of the two rows. The tolerance is eight times that.
var tolerance = 8 * math.Sqrt(4*(6*24+96+12)+2*24) * 0x1p-24

// same fails unless two rows agree. It skips the first entry, the target's, which the trainer does
// not leave exactly.
func same(t *testing.T, what string, got, want []float64) {
	t.Helper()
	largest := 1.0
	for _, v := range want {
		largest = max(largest, math.Abs(v))
	}
	for i := range want[1:] {
		if d := math.Abs(got[i+1] - want[i+1]); !(d <= tolerance*largest) {
			t.Fatalf("%s: token %d: log probability %v, the trainer's %v", what, i+1, got[i+1], want[i+1])
		}
	}
	if math.Abs(math.Exp(got[0])-math.Exp(want[0])) > tolerance*largest {
		t.Fatalf("%s: token 0: log probability %v, the trainer's %v", what, got[0], want[0])
	}
}

// TestLogitsAreTheTrainers: a prompt that is fed at once, in parts, or token by token has the
// logits of the forward of training.
func TestLogitsAreTheTrainers(t *testing.T) {
	for name, c := range shapes {
		t.Run(name, func(t *testing.T) {
			r := newTrainer(t, c)
			tokens := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 28, 0}
			want := r.logProbabilities(t, tokens)
			for _, part := range []int{1, 5, len(tokens), -len(tokens)} {
				k := kernel.Backend(nil)
				if part < 0 {
					part, k = -part, r.x.Backend
				}
				s := r.sampler(t, 2, k).NewSession(len(tokens), nil)
				for lo := 0; lo < len(tokens); lo += part {
					hi := min(lo+part, len(tokens))
					same(t, "logits", logSoftmax(fed(t, s, tokens[lo:hi]...)), want[hi-1])
				}
			}
		})
	}
}

// TestLongPrompts: a prompt of several forwards has the logits of its tokens one by one, with exits or
// without. Without exits the logits are the trainer's. A session and a model that are closed leave no
// memory.
func TestLongPrompts(t *testing.T) {
	c := shapes["llama"]
	c.Sequence = 2*mostTokens + 20
	early := c.With(exits.Exits{After: "1", Confidence: "classifier", Threshold: 0.5})
	tokens := make([]int32, c.Sequence-1)
	for i := range tokens {
		tokens[i] = int32(i * i % c.Vocab)
	}
	for name, c := range map[string]model.Config{"exits": early, "no exits": c} {
		r := newTrainer(t, c)
		m, leaving := r.sampler(t, 2, nil), &Leaving{Thresholds: []float64{0.5}}
		if name == "no exits" {
			leaving = nil
		}
		s, left := m.NewSession(c.Sequence, leaving), 0
		weights := m.device.(*cpu.Device).Used()
		var last []float64
		for _, token := range tokens {
			last = logSoftmax(fed(t, s, token))
			left += c.Blocks - s.depth
		}
		s.Reset()
		same(t, name, logSoftmax(fed(t, s, tokens...)), last)
		if leaving == nil {
			same(t, name, last, r.logProbabilities(t, tokens)[len(tokens)-1])
		} else if left == 0 || left == len(tokens) {
			t.Errorf("%d of %d tokens left, want some", left, len(tokens))
		}
		if s.Close(); m.device.(*cpu.Device).Used() != weights {
			t.Error("a closed session has memory")
		}
		if m.Close(); m.device.(*cpu.Device).Used() != 0 {
			t.Error("a closed model has memory")
		}
	}
}

// TestGreedyIsTheTrainers: greedy sampling takes, token for token, the most probable token of the
// forward of training. Beyond the model's positions that is the forward of the last half of the
// text and all that followed it.
func TestGreedyIsTheTrainers(t *testing.T) {
	for name, c := range shapes {
		t.Run(name, func(t *testing.T) { greedyIsTheTrainers(t, c) })
	}
}

func greedyIsTheTrainers(t *testing.T, c model.Config) {
	r := newTrainer(t, c)
	prompt, slides := []int32{7, 7, 2}, 0
	got := generated(t, r.sampler(t, 1, nil), Generation{Prompt: prompt, Tokens: 25, Vocab: c.Vocab, Choice: Choice{TopP: 1}}, &slides)
	text, seen := slices.Clone(prompt), slices.Clone(prompt)
	for i := range 25 {
		if len(seen) > c.Sequence {
			seen = slices.Clone(text[len(text)-c.Sequence/2:])
		}
		rows := r.logProbabilities(t, seen)
		row := rows[len(rows)-1]
		best := slices.Index(row, slices.Max(row))
		if int(got[i]) != best {
			t.Fatalf("token %d is %d, the trainer's %d", i, got[i], best)
		}
		text, seen = append(text, int32(best)), append(seen, int32(best))
	}
	if slides != 1 {
		t.Errorf("told %d times that the text slides", slides)
	}
}

// generated returns the tokens of a generation.
func generated(t *testing.T, m *Model, g Generation, slides *int) []int32 {
	t.Helper()
	var tokens []int32
	expect.OK(t, m.Generate(t.Context(), g, func(token int32) error {
		tokens = append(tokens, token)
		return nil
	}, func() { *slides++ }))
	return tokens
}

// TestSeedsAndThreads: equal seeds give equal texts with any number of threads. Other seeds give
// other texts.
func TestSeedsAndThreads(t *testing.T) {
	r := newTrainer(t, shapes["experts"])
	text := func(threads int, seed uint64) []int32 {
		g := Generation{Prompt: []int32{1}, Tokens: 40, Vocab: tiny.Vocab, Choice: Choice{Temperature: 3, TopK: 20, TopP: 0.9, Seed: seed}}
		return generated(t, r.sampler(t, threads, nil), g, new(int))
	}
	first := text(1, 1)
	if !slices.Equal(first, text(3, 1)) {
		t.Error("threads change the text")
	}
	if slices.Equal(first, text(1, 2)) {
		t.Error("another seed gives the same text")
	}
}

// TestRefusesOtherModels: a shape that this package cannot compute is refused by name.
func TestRefusesOtherModels(t *testing.T) {
	other := tiny
	other.Family = "mamba"
	if _, err := New(other, 1, nil, nil); err == nil || err.Error() != "a model of family mamba, want gpt2 or llama: sample knows no other" {
		t.Errorf("error %v", err)
	}
}
