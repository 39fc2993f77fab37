package nodebench

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"sync"

	"gonum.org/v1/gonum/blas/blas32"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/kind/moe"
	"dynmo/src/model"
	"dynmo/src/random"
	"dynmo/src/sample"
	"dynmo/src/tensor"
)

const (
	// Streamed is how many floats are read, and how many are copied, to measure memory's rate: 256
	// MiB, more than caches hold.
	Streamed = 64 << 20
	// sampleReach is the share of memory's rate that sampling should reach.
	sampleReach = 0.5
	// sampledTokens is how many tokens are compared with the forward of training.
	sampledTokens = 16
)

// Sampled has the models to measure sampling with, by name: GPT-2 124M, and a LLaMA and a mixture
// of experts. The latter two have GPT-2's width and depth, and LLaMA 2's vocabulary.
var Sampled = func() map[string]model.Config {
	llama := model.Config{
		Family: "llama", Blocks: 12, Hidden: 768, Heads: 12, KeyValueHeads: 4, Sequence: 1024, Vocab: 32000,
		Intermediate: 2048, NormEps: 1e-5, Rope: model.Rope{Base: 10000}, Seed: 1,
	}
	mixtral := llama
	mixtral.Intermediate = 512
	mixtral = mixtral.With(moe.Experts{Count: 8, Top: 2})
	return map[string]model.Config{"gpt2": GPT2Small, "llama": llama, "mixtral": mixtral}
}()

// Sample measures how fast package sample adds a token to a text, on a number of threads. It
// compares the rate with that of memory, because a token reads every weight once:
//
//	NAME/memory_ratio = bytes of weights / token seconds / rate of memory
//
// The rate of memory is the larger of two rates on the same threads: reading and copying of
// streamed floats. Read and written bytes both count. Sampling is right if it gives the tokens of a
// text the same probabilities as the forward of training on k.
func Sample(k kernel.Backend, dev device.Device, name string, c model.Config, streamed, threads int, rounds Rounds) ([]Result, error) {
	b := newBench(k, dev)
	defer b.free()
	m, wrong, err := b.sampler(c, threads)
	if err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	defer m.Close()
	s := m.NewSession(c.Sequence, nil)
	defer s.Close()
	span := func() []float32 { return tensor.Of[float32](b.alloc(4 * int64(streamed))) } // in huge pages, like the weights
	from, to := span(), span()
	if b.err != nil {
		return nil, fmt.Errorf("sample: %w", b.err)
	}
	for i := range from {
		from[i], to[i] = 1, 1 // written once, because all pages of unwritten memory are the same page
	}
	spans := b.rounds(rounds,
		func() {
			if s.Len() == c.Sequence {
				s.Reset()
			}
			if _, err := s.Feed(1); err != nil {
				b.err = cmp.Or(b.err, err)
			}
		},
		func() { split(streamed, threads, func(lo, hi int) { read(from[lo:hi]) }) },
		func() { split(streamed, threads, func(lo, hi int) { copy(to[lo:hi], from[lo:hi]) }) })
	if b.err != nil {
		return nil, fmt.Errorf("sample: %w", b.err)
	}
	bytes := 4 * float64(streamed)
	fastest, moved := 1, bytes
	if seconds := spans.medians(); 2*bytes/seconds[2] > bytes/seconds[1] {
		fastest, moved = 2, 2*bytes
	}
	b.add(name+"/tokens_per_second", spans.rate(0, 1), "tokens/s", 0, wrong)
	b.add(name+"/weights", spans.rate(0, 1e-9*float64(m.TokenBytes())), "GB/s", 0, wrong)
	b.add(name+"/read", spans.rate(1, 1e-9*bytes), "GB/s", 0, 0)
	b.add(name+"/copy", spans.rate(2, 2e-9*bytes), "GB/s", 0, 0)
	b.add(name+"/memory_ratio", spans.ratio(fastest, 0, float64(m.TokenBytes())/moved), "ratio", sampleReach, wrong)
	return b.results, nil
}

// split calls do with equal parts of [0, n) on a number of threads.
func split(n, threads int, do func(lo, hi int)) {
	if threads == 1 {
		do(0, n) // on this thread, because a virtual clock counts only this thread's time
		return
	}
	var group sync.WaitGroup
	for t := range threads {
		group.Go(func() { do(t*n/threads, (t+1)*n/threads) })
	}
	group.Wait()
}

// read reads all of x.
func read(x []float32) {
	v := blas32.Vector{N: len(x), Inc: 1, Data: x}
	if blas32.Dot(v, v) == 0 {
		panic("nodebench: ones sum to zero")
	}
}

// sampler returns a sampler of a model with its initial weights. wrong is 1 if its probabilities
// are wrong, else 0.
func (b *bench) sampler(c model.Config, threads int) (m *sample.Model, wrong int, err error) {
	x := &model.Exec{Device: b.dev, Backend: b.k, Stream: b.stream, B: 1, T: sampledTokens, Scale: 1}
	if err := x.Reserve(c); err != nil {
		return nil, 0, err
	}
	defer x.Close()
	stage, err := model.NewStage(c, c.All(), b.dev, b.k.DType())
	if err != nil {
		return nil, 0, err
	}
	defer stage.Free()
	draw := random.Keyed(2)
	text := make([]int32, sampledTokens+1)
	for i := range text {
		text[i] = draw.Int32N(int32(c.Vocab))
	}
	want, err := b.forward(x, stage, text[:sampledTokens], text[1:])
	if err != nil {
		return nil, 0, err
	}
	m, err = sample.New(c, threads, b.k, func(w model.Weight) ([]float32, error) {
		for _, l := range stage.Layers {
			if p := l.Param(w.Name); p != nil && !p.Borrowed() {
				return append([]float32(nil), tensor.Of[float32](p.W)...), nil
			}
		}
		return nil, errors.New("the model has no " + w.Name)
	})
	if err != nil {
		return nil, 0, err
	}
	s, got := m.NewSession(sampledTokens, nil), 0.0
	defer s.Close()
	for i, token := range text[:sampledTokens] {
		logits, err := s.Feed(token)
		if err != nil {
			m.Close()
			return nil, 0, err
		}
		got += surprise(logits, int(text[i+1]))
	}
	if !(math.Abs(got-want) <= tolerance*math.Abs(want)) {
		wrong = 1
	}
	return m, wrong, nil
}

// forward returns the sum of the losses of tokens, from the forward of training.
func (b *bench) forward(x *model.Exec, stage *model.Stage, tokens, targets []int32) (float64, error) {
	inp, last, memory := none, model.Saved{}, model.Heap{Device: x.Device}
	defer memory.Free()
	for _, l := range stage.Layers {
		sizes := l.Sizes(x)
		last = model.Saved{Kept: b.alloc(sizes.Kept), Again: b.alloc(sizes.Again)}
		if b.err != nil {
			return 0, b.err
		}
		batch := &x.Full
		if w := l.NewWork(x, &memory); w != nil {
			batch = w.Enter(batch)
		}
		l.Feed(x, batch, last, tokens, targets)
		if err := l.Forward(x, batch, last, inp); err != nil {
			return 0, err
		}
		inp = l.Output(x, batch, last)
	}
	b.sync()
	head := stage.Layers[len(stage.Layers)-1]
	return tensor.Of[float64](head.Reading(x, &x.Full, last, 0))[0], b.err
}

// surprise returns -log softmax(logits)[token].
func surprise(logits []float32, token int) float64 {
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v))
	}
	return math.Log(sum) - float64(logits[token])
}
