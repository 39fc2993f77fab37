package exit

import (
	"dynmo/src/expect"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
	"fmt"
	"math"
	"slices"
	"testing"
)

// propagating is exiting where states of tokens that left go on.
func propagating(confidence string, threshold float64) model.Config {
	c := exiting(confidence, threshold)
	modeltest.Edit(&c, func(k *Exits) { k.Propagate = true })
	return c
}

// leaveBy sets the thresholds of both exits so that the given number of tokens leave at the first.
func leaveBy(c *modeltest.Chain, left int) {
	c.Loss()
	confidences := slices.Sorted(slices.Values(c.Work[exits(c)[0]].(*departure).confidence))
	for _, i := range exits(c) {
		threshold := 2.0
		if n := len(confidences); left > 0 {
			threshold = (confidences[n-left] + slices.Concat([]float64{-1}, confidences)[n-left]) / 2
		}
		c.S.Layers[i].Tune(threshold)
	}
}

// exits returns which layers are.
func exits(c *modeltest.Chain) (list []int) {
	for i, l := range c.S.Layers {
		if l.Kind == model.Exit {
			list = append(list, i)
		}
	}
	return list
}

// TestGradientOfPropagation compares every gradient with the central difference of the
// losses, where gradients flow back through keys and values of tokens that have left.
func TestGradientOfPropagation(t *testing.T) {
	for _, v := range []struct {
		confidence string
		left       int // of 10 tokens, at the first exit
		half       bool
		slices     int
		format     model.Format
	}{
		{"softmax", 0, false, 1, model.Dense}, {"softmax", 3, false, 1, model.Dense}, {"classifier", 6, true, 1, model.Dense}, {"classifier", 9, false, 2, model.Dense},
		{"saturation", 5, true, 1, model.Dense}, {"softmax", 10, false, 1, model.Dense}, {"classifier", 4, true, 3, model.CSR}, {"softmax", 7, false, 1, model.Masked},
	} {
		t.Run(fmt.Sprintf("%s/%d leave/half=%v/slices=%d/%v", v.confidence, v.left, v.half, v.slices, v.format), func(t *testing.T) {
			c := propagating(v.confidence, 2)
			c.HalfGrain, c.HeadShards = v.half, v.slices
			ch := newChain(t, c, tensor.F64)
			modeltest.Enlarge(ch.S)
			modeltest.Thin(t, ch.S, v.format)
			leaveBy(ch, v.left)
			modeltest.CheckGradients(t, ch)
			first := ch.Batches[exits(ch)[0]].Leaves()
			tokens, departed := 10, v.left
			if v.left == 10 {
				tokens, departed = 0, 0
			}
			if first.Tokens != tokens || first.KeysOnly() != departed {
				t.Errorf("%d tokens behind the exit, %d of them departed, want %d and %d", first.Tokens, first.KeysOnly(), tokens, departed)
			}
			if end := ch.Batches[len(ch.Batches)-1]; end.Queries < end.Tokens || end.Tokens > tokens-departed {
				t.Errorf("%d tokens at the head, %d departed, want %d at most", end.Tokens, end.KeysOnly(), tokens-departed)
			}
		})
	}
}

// TestGradientOfPropagatedGroups: likewise where heads share keys and values, and turn.
func TestGradientOfPropagatedGroups(t *testing.T) {
	c := modeltest.SmallLlama
	c.Blocks = 3
	c = c.With(Exits{After: "1,2", Confidence: "softmax", Threshold: 2, Probe: 0.4, Weight: 0.3, Propagate: true})
	ch := newChain(t, c, tensor.F64)
	modeltest.Enlarge(ch.S)
	leaveBy(ch, 6)
	modeltest.CheckGradients(t, ch)
	if first := ch.Batches[exits(ch)[0]].Leaves(); first.KeysOnly() != 6 {
		t.Errorf("%d tokens have departed, want 6", first.KeysOnly())
	}
}

// TestPropagation compares with a model that computes every block for all tokens. That model puts
// back the states of tokens at the moment when they left. The states of tokens that go on are
// equal.
func TestPropagation(t *testing.T) {
	groups := modeltest.SmallLlama
	groups.Blocks = 3
	for _, c := range []model.Config{propagating("softmax", 2), groups.With(Exits{After: "1,2", Confidence: "softmax", Threshold: 2, Propagate: true})} {
		checkPropagation(t, c)
	}
}

func checkPropagation(t *testing.T, c model.Config) {
	t.Helper()
	got := newChain(t, c, tensor.F64)
	modeltest.Enlarge(got.S)
	leaveBy(got, 4)
	got.Loss()
	c.Kinds = model.Extensions{}
	twin := newChain(t, c, tensor.F64)
	var states []float64
	for i, l := range got.S.Layers[:len(got.S.Layers)-1] {
		b := got.Batches[i]
		rows := map[int]int{} // by token
		for row := range b.Tokens {
			rows[int(b.At(row))] = row
		}
		if l.Kind == model.Exit {
			continue
		}
		at := slices.IndexFunc(twin.S.Layers, func(o *model.Layer) bool { return o.Name == l.Name })
		for i, p := range l.Params() {
			copy(tensor.Of[float64](twin.S.Layers[at].Params()[i].W), tensor.Of[float64](p.W))
		}
		inp := tensor.From(slices.Clone(states))
		twin.S.Layers[at].Feed(twin.X, twin.B, twin.Saved[at], twin.Tokens, twin.Targets)
		expect.OK(t, twin.S.Layers[at].Forward(twin.X, twin.B, twin.Saved[at], inp))
		before := states
		states = slices.Clone(tensor.Of[float64](twin.S.Layers[at].Output(twin.X, twin.B, twin.Saved[at])))
		out := tensor.Of[float64](l.Output(got.X, b, got.Saved[i]))
		for token := range twin.X.N() {
			mine := states[token*c.Hidden:][:c.Hidden]
			if rows[token] >= b.Queries {
				copy(mine, before[token*c.Hidden:])
			}
			if row := rows[token]; row < b.Leaves().Tokens {
				for k, want := range mine {
					if got := out[row*c.Hidden+k]; math.Abs(got-want) > 1e-12 {
						t.Fatalf("%s: value %d of token %d is %v, want %v", l.Name, k, token, got, want)
					}
				}
			}
		}
	}
}
