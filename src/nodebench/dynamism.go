package nodebench

import (
	"errors"
	"fmt"
	"slices"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/model"
)

// Dynamic is the model whose steps are measured with and without dynamism: small enough
// for a laptop, its products large enough that their time counts.
var Dynamic = model.Config{Blocks: 8, Hidden: 256, Heads: 8, Sequence: 128, Vocab: 256, Seed: 1}

// dynamicSequences is the sequences of a step.
const dynamicSequences = 4

// saving is a benchmark of the work that a kind of dynamism saves.
type saving struct {
	kind    string
	measure func(b *bench, c model.Config, rounds int) error
}

// savings are those of all kinds.
var savings = []saving{
	{"freeze", (*bench).freezing}, {"attention", (*bench).bucketed}, {"exit", (*bench).exiting},
	{"mod", func(b *bench, c model.Config, rounds int) error {
		return b.proportional(c, rounds, "mod", 0.9, "dynamic.kind=mod")
	}},
}

// Dynamism measures what kinds of dynamism save of a training step on one rank, or of the
// part of it that they are about, each in turn with the dense model. A figure is right if
// losses are finite and fall on the same batch.
func Dynamism(k kernel.Backend, dev device.Device, c model.Config, kinds []string, rounds int) ([]Result, error) {
	b := newBench(k, dev)
	defer b.free()
	for _, s := range savings {
		if !slices.Contains(kinds, s.kind) {
			continue
		}
		if err := s.measure(b, c, rounds); err != nil {
			return nil, fmt.Errorf("dynamism: %s: %w", s.kind, err)
		}
	}
	return b.results, b.err
}

// freezing measures steps in which half of the blocks are frozen: every second one, or
// the first half with the embedding before it.
//
//	dynamism/freeze_… = 1 - frozen step seconds / dense step seconds
//
// A frozen block does one of three passes, or two where a gradient goes through it: a sixth
// of the step is the most that every second block can save, a third the first half. Nine tenths of that
// are to be reached.
func (b *bench) freezing(c model.Config, rounds int) error {
	blocks, half := 1, c.Blocks/2 // layers before the first block
	return b.saved(c, rounds,
		variant{"freeze_half_saved", 0.15, func(l int) bool { return l >= blocks && (l-blocks)%2 == 1 && l < blocks+c.Blocks }},
		variant{"freeze_first_half_saved", 0.30, func(l int) bool { return l < blocks+half }})
}

// variant is a frozen model that is to be faster than the dense one.
type variant struct {
	name   string
	reach  float64              // of the share of a step that it saves
	frozen func(layer int) bool // nil: no layer
}

// saved measures the share of a step that variants of a model save.
func (b *bench) saved(c model.Config, rounds int, variants ...variant) error {
	steppers := make([]*stepper, 0, 1+len(variants))
	defer func() {
		for _, s := range steppers {
			s.free()
		}
	}()
	calls := make([]func(), 0, cap(steppers))
	for _, v := range append([]variant{{}}, variants...) {
		s, err := b.stepper(c)
		if err != nil {
			return err
		}
		steppers, calls = append(steppers, s), append(calls, s.step)
		if v.frozen != nil {
			if err := s.freeze(v.frozen); err != nil {
				return err
			}
		}
	}
	spans := b.rounds(rounds, calls...)
	for i, v := range variants {
		s, wrong := steppers[1+i], 0
		if err := errors.Join(steppers[0].err, s.err); err != nil {
			return err
		}
		if !steppers[0].plausible() || !s.plausible() {
			wrong = 1
		}
		b.add("dynamism/"+v.name, spans.saved(1+i, 0), "share", v.reach, wrong)
	}
	return nil
}

// stepper returns what trains a model on one batch.
func (b *bench) stepper(c model.Config) (*stepper, error) {
	return newStepper(&model.Exec{Device: b.dev, Backend: b.k, Stream: b.dev.NewStream(), B: dynamicSequences, T: c.Sequence}, c, 1, false)
}

// saved returns the share of the seconds of call b that call a saves in the same round.
func (s spans) saved(a, b int) estimate {
	shares := make([]float64, len(s[a]))
	for round := range shares {
		shares[round] = 1 - s[a][round]/s[b][round]
	}
	return estimated(shares)
}

// freeze freezes layers of the model.
func (s *stepper) freeze(frozen func(layer int) bool) error {
	s.stage.Freeze(frozen)
	s.runner.Close()
	var err error
	s.runner, err = s.place()
	return err
}
