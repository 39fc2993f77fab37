package nodebench

import (
	"fmt"
	"math"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/pipeline"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// GPT2Small is GPT-2 124M (Radford et al. 2019).
var GPT2Small = model.Config{Blocks: 12, Hidden: 768, Heads: 12, Sequence: 1024, Vocab: 50257, Tied: true, Seed: 1}

// square is the side of the dense product that a step is compared with. It is large enough that
// packing and edges do not count.
const square = 1536

// Step measures a whole training step on one rank (forward, backward, norm,
// update) of a batch of b sequences of t tokens:
//
//	NAME/sgemm_ratio = 6 · parameters · tokens / step seconds / rate of a dense product
//
// The ratio is only given of a tied model, whose parameters are all used for every token. Step and product
// use `threads` threads: the backend's own, and those of the BLAS if there is one. The product is one call.
// The step is right if three things hold: its loss is finite, is near ln(vocabulary) at first, and falls on
// the same batch. Unless rounded is nil, the same step is measured with these kernels, in turn:
//
//	NAME/bf16_over_f32 = step seconds of k / step seconds of rounded
func Step(k, rounded kernel.Backend, dev device.Device, name string, c model.Config, b, t, threads int, rounds Rounds) ([]Result, error) {
	bench := newBench(k, dev)
	defer bench.free()
	var steppers []*stepper
	for _, kernels := range []kernel.Backend{k, rounded} {
		if kernels == nil {
			continue
		}
		s, err := newStepper(&model.Exec{Device: dev, Backend: kernels, Stream: dev.NewStream(), B: b, T: t}, c, 1, false)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		defer s.free()
		steppers = append(steppers, s)
	}
	s := steppers[0]
	draw := random.Keyed(1).NormFloat64
	inp, weight, out := bench.matrix(square*square, draw), bench.matrix(square*square, draw), bench.matrix(square*square, nil)
	if bench.err != nil {
		return nil, fmt.Errorf("%s: %w", name, bench.err)
	}
	product := func() { k.MatmulForward(bench.stream, out, inp, weight, none, square, square, square) }
	if b, ok := k.(blas); ok {
		product = func() { b.Sgemm(threads, out, inp, weight, square) }
	}
	timed := []func(){s.step, product}
	if rounded != nil {
		timed = append(timed, steppers[1].step)
	}
	spans := bench.rounds(rounds, timed...)
	wrong := 0
	for _, s := range steppers {
		if s.err != nil {
			return nil, fmt.Errorf("%s: %w", name, s.err)
		}
		if !s.plausible() {
			wrong = 1
		}
	}
	tokens := float64(b * t)
	operations, squareOperations := 6*float64(s.parameters())*tokens, 2*math.Pow(square, 3)
	row := func(figure string) string { return fmt.Sprintf("%s/%s_b%d_t%d", name, figure, b, t) }
	bench.add(row("tokens_per_second"), spans.rate(0, tokens), "tokens/s", 0, wrong)
	bench.add(name+"/sgemm_rate", spans.rate(1, squareOperations/1e9), "GFLOP/s", 0, 0)
	if c.Tied {
		bench.add(row("rate"), spans.rate(0, operations/1e9), "GFLOP/s", 0, wrong)
		bench.add(row("sgemm_ratio"), spans.ratio(1, 0, operations/squareOperations), "ratio", stepReach(threads), wrong)
	}
	if rounded != nil {
		bench.add(row("bf16_tokens_per_second"), spans.rate(2, tokens), "tokens/s", 0, wrong)
		bench.add(row("bf16_over_f32"), spans.ratio(0, 2, 1), "ratio", 0, wrong)
		if c.Tied {
			bench.add(row("bf16_rate"), spans.rate(2, operations/1e9), "GFLOP/s", 0, wrong)
		}
	}
	return bench.results, bench.err
}

// blas is a backend with a BLAS. Sgemm computes out = inp·weightᵀ, all (n, n).
type blas interface {
	Sgemm(threads int, out, inp, weight tensor.Mem, n int)
}

// stepReach is the share of a dense product's rate that a step should reach. On one thread the
// step's products alone reach 0.93. More threads also share the memory bandwidth that the update
// needs.
func stepReach(threads int) float64 {
	if threads > 1 {
		return 0.80
	}
	return 0.85
}

// stepper trains a model on one batch, on one rank.
type stepper struct {
	x      *model.Exec
	stage  *model.Stage
	runner *pipeline.Runner
	feed   pipeline.Feed
	losses []float64
	err    error // the first error
}

// newStepper returns a stepper that trains on the same microbatches in every step. A microbatch has
// x.B sequences of x.T tokens. The stepper owns x.
func newStepper(x *model.Exec, c model.Config, microbatches int, graphs bool) (*stepper, error) {
	world := comm.New(local.World(1)[0], comm.Options{Clock: x.Device.Clock()})
	alone, err := world.Split(0, 0)
	if err != nil {
		return nil, err
	}
	n := x.N()
	x.Scale = 1 / float64(n*microbatches)
	if err := x.Reserve(c); err != nil {
		return nil, err
	}
	s := &stepper{x: x}
	if s.stage, err = model.NewStage(c, c.All(), x.Device, x.Backend.DType()); err != nil {
		x.Close()
		return nil, err
	}
	draw := random.Keyed(2)
	tokens := make([]int32, microbatches*n+1)
	for i := range tokens {
		tokens[i] = draw.Int32N(int32(c.Vocab))
	}
	s.feed = func(m int) ([]int32, []int32) { return tokens[m*n : (m+1)*n], tokens[m*n+1 : (m+1)*n+1] }
	plan, err := schedule.New(schedule.Kind1F1B, 1, 1, microbatches)
	if err == nil {
		s.runner, err = pipeline.New(x, layout.New(partition.Partition{0, c.Layers()}, plan, 1, layout.StageMajor), s.stage,
			pipeline.Groups{Stages: world, Replicas: alone}, pipeline.Options{Graphs: graphs})
	}
	if err != nil {
		s.free()
		return nil, err
	}
	return s, nil
}

// step trains one step.
func (s *stepper) step() {
	if s.err != nil {
		return
	}
	done, err := s.runner.Step(s.feed)
	if err != nil {
		s.err = err
		return
	}
	agreed, err := s.runner.Agree(done.Losses, pipeline.Nothing)
	if err != nil {
		s.err = err
		return
	}
	s.losses = append(s.losses, agreed.Loss)
	s.err = s.runner.Update(kernel.AdamW{
		LR: 3e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, GradScale: min(1, 1/agreed.Norm),
	})
}

// parameters returns the number of the model's parameters. Tied ones count once.
func (s *stepper) parameters() int64 {
	n := int64(0)
	for _, l := range s.stage.Layers {
		n += l.NonZeros()
	}
	for _, t := range s.stage.Config.Ties() {
		n -= int64(t.Rows * t.Cols)
	}
	return n
}

// plausible reports whether the losses are those of a model that trains.
func (s *stepper) plausible() bool {
	first, last := s.losses[0], s.losses[len(s.losses)-1]
	return math.Abs(first-math.Log(float64(s.stage.Config.Vocab))) < 0.5 && last < first
}

func (s *stepper) free() {
	if s.runner != nil {
		s.runner.Close()
	}
	s.stage.Free()
	s.x.Close()
}
