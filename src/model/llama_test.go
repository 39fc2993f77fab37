package model_test

import (
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
	"fmt"
	"math"
	"testing"
)

// TestLlamaIsThePlainModel: logits, loss and gradients are those of the model written
// number by number, whatever the key-value heads, the scaling of positions and the tie.
func TestLlamaIsThePlainModel(t *testing.T) {
	llama3 := model.Rope{Base: 500, Scaling: model.RopeLlama3, Factor: 8, Low: 1, High: 4, Original: 40}
	for name, change := range map[string]func(*model.Config){
		"grouped": func(*model.Config) {},
		"all":     func(c *model.Config) { c.KeyValueHeads = 4 },
		"one":     func(c *model.Config) { c.KeyValueHeads, c.Tied = 1, true },
		"linear":  func(c *model.Config) { c.Rope.Scaling, c.Rope.Factor = model.RopeLinear, 3 },
		"llama3":  func(c *model.Config) { c.Heads, c.KeyValueHeads, c.Rope = 1, 1, llama3 },
		"slices":  func(c *model.Config) { c.HeadShards, c.HalfGrain = 3, true },
	} {
		t.Run(name, func(t *testing.T) {
			c := modeltest.SmallLlama
			change(&c)
			ch := modeltest.New(t, c, tensor.F64)
			modeltest.Enlarge(ch.S)
			ch.Gradients()
			p, logits := modeltest.PlainOf(ch, nil)
			loss := p.Loss(logits, ch.Targets)
			if got := ch.Loss(); math.Abs(got-loss.X) > 1e-10 {
				t.Errorf("loss %v, plainly %v", got, loss.X)
			}
			EqualLogits(t, ch, logits)
			modeltest.EqualGradients(t, ch, p, p.Derivatives(loss))
		})
	}
}

// EqualLogits compares what the head multiplies: its own logits are gradients by now.
func EqualLogits(t *testing.T, ch *modeltest.Chain, want [][]modeltest.Scalar) {
	t.Helper()
	for i, l := range ch.S.Layers {
		if l.Kind != model.Head {
			continue
		}
		m, weights, hidden, lo, rows := model.Logits(l, ch.X, ch.B, ch.Saved[i])
		normed, w := tensor.Of[float64](m), tensor.Of[float64](weights)
		for n := range want {
			for v := range rows {
				logit := 0.0
				for k := range hidden {
					logit += normed[n*hidden+k] * w[v*hidden+k]
				}
				if off := math.Abs(logit - want[n][lo+v].X); off > 1e-10 {
					t.Fatalf("token %d: logit %d is %v, plainly %v", n, lo+v, logit, want[n][lo+v].X)
				}
			}
		}
	}
}

// TestGradientOfLlama compares every gradient with the central difference of the loss,
// whatever the formats of the matrices, of some tokens.
func TestGradientOfLlama(t *testing.T) {
	for _, tied := range []bool{false, true} {
		for _, format := range []model.Format{model.Dense, model.Masked, model.CSR} {
			t.Run(fmt.Sprintf("tied=%v/%v", tied, format), func(t *testing.T) {
				c := modeltest.SmallLlama
				c.Tied, c.HalfGrain, c.HeadShards = tied, tied, 1+len(format.String())%3
				ch := modeltest.New(t, c, tensor.F64)
				modeltest.Enlarge(ch.S)
				modeltest.Thin(t, ch.S, format)
				if format == model.Masked {
					ch.Some(4, 1, 3)
				}
				modeltest.CheckGradients(t, ch)
			})
		}
	}
}

// TestGroupsOfOne: as many key-value heads as heads are what no number of them says.
func TestGroupsOfOne(t *testing.T) {
	a, b := modeltest.SmallLlama, modeltest.SmallLlama
	a.KeyValueHeads, b.KeyValueHeads = a.Heads, 0
	x, y := modeltest.New(t, a, tensor.F32), modeltest.New(t, b, tensor.F32)
	x.Gradients()
	y.Gradients()
	for i, l := range x.S.Layers {
		if !modeltest.SameValues(l.Gradient(), y.S.Layers[i].Gradient(), tensor.F32) {
			t.Errorf("%s: other gradients", l.Name)
		}
	}
}

// TestLlamaBytes: the bytes that layers announce are the bytes that they take.
func TestLlamaBytes(t *testing.T) {
	for _, half := range []bool{false, true} {
		c := modeltest.SmallLlama
		c.HalfGrain = half
		ch := modeltest.New(t, c, tensor.F32)
		if used := ch.X.Device.Used(); used < ch.X.ScratchBytes(c) {
			t.Errorf("%d bytes in use with scratch of %d", used, ch.X.ScratchBytes(c))
		}
		ch.CheckBytes(t)
	}
}
