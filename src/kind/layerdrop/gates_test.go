package layerdrop

import (
	"fmt"
	"testing"

	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
)

// TestGradientOfGates compares every gradient with the central difference of the loss. A block is
// kept and scaled, or dropped, also for some of the tokens.
func TestGradientOfGates(t *testing.T) {
	for name, shape := range map[string]model.Config{"gpt2": modeltest.Small, "llama": modeltest.SmallLlama} {
		for _, half := range []bool{false, true} {
			for _, gates := range [][2]float64{{0.8, 0.6}, {0.8, -0.6}, {-0.8, 1}} {
				t.Run(fmt.Sprintf("%s/half=%v/%v", name, half, gates), func(t *testing.T) {
					c := shape.With(blockGates{})
					c.HalfGrain, c.Tied = half, half
					ch := modeltest.New(t, c, tensor.F64)
					modeltest.Enlarge(ch.S)
					if half {
						ch.Some(4, 1, 3)
					}
					for _, l := range ch.S.Layers {
						if l.Block >= 0 {
							l.Tune(gates[l.Block])
						}
					}
					modeltest.CheckGradients(t, ch)
				})
			}
		}
	}
}

// TestOpenGates: where every block is kept in every step, losses and gradients are those of
// the dense model, bit for bit; validation computes the dense model whatever is dropped.
func TestOpenGates(t *testing.T) {
	for _, precision := range []tensor.DType{tensor.F32, tensor.F64} {
		dense, ch := modeltest.New(t, modeltest.Small, precision), modeltest.New(t, modeltest.Small.With(blockGates{}), precision)
		dense.Gradients()
		ch.Gradients()
		for i, l := range dense.S.Layers {
			gradient := func(p *model.Param) tensor.Mem { return p.G }
			if string(modeltest.Slab(l, gradient)) != string(modeltest.Slab(ch.S.Layers[i], gradient)) {
				t.Errorf("%v: %s has other gradients than in the dense model", precision, l.Name)
			}
		}
		for _, l := range ch.S.Layers[1:3] {
			l.Tune(-0.5)
		}
		training := ch.Loss()
		ch.X.Validates = true
		if got, want := ch.Loss(), dense.Loss(); got != want || training == want {
			t.Errorf("%v: loss %v in training, %v in validation, want %v", precision, training, got, want)
		}
	}
}

// TestWorkOfGates: a dropped block works on no token, and says how often it is kept.
func TestWorkOfGates(t *testing.T) {
	ch := modeltest.New(t, modeltest.Small.With(blockGates{}), tensor.F32)
	ch.S.Layers[1].Tune(0.75)
	ch.S.Layers[2].Tune(-0.5)
	ch.Loss()
	for layer, want := range map[int]struct {
		tokens int
		share  float64
	}{0: {10, 1}, 1: {10, 0.75}, 2: {0, 0.5}} {
		if b := ch.Batches[layer]; b.Worked() != want.tokens || b.Expected() != want.share {
			t.Errorf("layer %d worked on %d tokens, in %v of the steps, want %+v", layer, b.Worked(), b.Expected(), want)
		}
	}
}
