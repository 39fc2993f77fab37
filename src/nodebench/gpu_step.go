package nodebench

import (
	"errors"

	"dynmo/src/model"
	"dynmo/src/trace"
)

// gptMedium is the paper's model of 24 blocks, with sequences of 2048 tokens. The vocabulary is
// GPT-2's, padded to a multiple of 64 as in Megatron-LM. So rows of logits are aligned, for PyTorch
// too.
var gptMedium = model.Config{Blocks: 24, Hidden: 1024, Heads: 16, Sequence: 2048, Vocab: 50304, Seed: 1}

const (
	stepMicrobatches = 4
	stepSequences    = 2 // in a microbatch
)

// step measures whole training steps on one rank, in bf16. A step is forward and backward of four
// microbatches of two sequences, the norm, and AdamW. Times are wall times, because a step ends
// when the host knows its loss.
//
//	step_utilisation = operations / seconds / rate of the large bf16 product
//
// The operations of a step are counted as in Megatron-LM (Narayanan et al. 2021, section 5.1,
// without recomputation). A token has 6 operations for each parameter of a matrix product;
// embeddings have none. A token and block have 12·t·channels in attention, as if attention were not
// causal. The step is right if its losses are those of a model that trains.
func (g *gpu) step() {
	c := gptMedium
	if g.Quick {
		c = model.Config{Blocks: 1, Hidden: 32, Heads: 1, Sequence: 16, Vocab: 61, Seed: 1}
	}
	x := &model.Exec{Device: g.Device, Backend: g.BF16, Stream: g.stream, B: stepSequences, T: c.Sequence}
	if g.tune(model.Products(c, x)); g.err != nil {
		return
	}
	s, err := newStepper(x, c, stepMicrobatches, true)
	if err != nil {
		g.err = err
		return
	}
	defer s.free()
	clock, seconds := g.Device.Clock(), []float64(nil)
	for round := range warmup + g.Rounds {
		begin := clock.Now()
		s.step()
		if round >= warmup {
			seconds = append(seconds, clock.Now()-begin)
		}
	}
	if g.err = s.err; g.err != nil {
		return
	}
	wrong := 0
	if !s.plausible() {
		wrong = 1
	}
	tokens := float64(stepMicrobatches * s.x.N())
	rate := tokens * tokenOperations(c) / trace.Median(seconds)
	g.figure("step_tokens_per_second", tokens/trace.Median(seconds), "tokens/s", 0, wrong)
	g.figure("step_rate", rate/1e12, "TFLOP/s", 0, wrong)
	g.figure("step_utilisation", rate/g.peak, "ratio", 0, wrong)
	g.fallenBack()
	g.figure("step_memory", float64(g.Device.Used())/(1<<30), "GiB", 0, wrong)
	if all, ok := g.Device.(interface {
		Memory() (free, total int64, err error)
	}); ok {
		free, total, err := all.Memory()
		g.err = errors.Join(g.err, err)
		g.figure("step_memory_of_process", float64(total-free)/(1<<30), "GiB", 0, wrong)
	}
}

// tokenOperations returns the operations of a training step for each token.
func tokenOperations(c model.Config) float64 {
	matrices := float64(c.Blocks)*12*float64(c.Hidden)*float64(c.Hidden) + float64(c.Vocab)*float64(c.Hidden)
	return 6*matrices + 12*float64(c.Blocks)*float64(c.Hidden)*float64(c.Sequence)
}
