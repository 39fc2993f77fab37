package model

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"dynmo/src/tensor"
)

// propagating is exiting where states of tokens that left go on.
func propagating(confidence string, threshold float64) Config {
	c := exiting(confidence, threshold)
	Edit(&c, func(k *Exits) { k.Propagate = true })
	return c
}

// leaveBy sets the thresholds of both exits so that so many tokens leave at the first.
func (c *chain) leaveBy(left int) {
	c.loss()
	confidences := slices.Sorted(slices.Values(c.work[c.exits()[0]].(*departure).confidence))
	for _, i := range c.exits() {
		threshold := 2.0
		if n := len(confidences); left > 0 {
			threshold = (confidences[n-left] + slices.Concat([]float64{-1}, confidences)[n-left]) / 2
		}
		c.s.Layers[i].SetThreshold(threshold)
	}
}

// exits returns which layers are.
func (c *chain) exits() (list []int) {
	for i, l := range c.s.Layers {
		if l.Kind == Exit {
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
		format     Format
	}{
		{"softmax", 0, false, 1, Dense}, {"softmax", 3, false, 1, Dense}, {"classifier", 6, true, 1, Dense}, {"classifier", 9, false, 2, Dense},
		{"saturation", 5, true, 1, Dense}, {"softmax", 10, false, 1, Dense}, {"classifier", 4, true, 3, CSR}, {"softmax", 7, false, 1, Masked},
	} {
		t.Run(fmt.Sprintf("%s/%d leave/half=%v/slices=%d/%v", v.confidence, v.left, v.half, v.slices, v.format), func(t *testing.T) {
			c := propagating(v.confidence, 2)
			c.HalfGrain, c.HeadShards = v.half, v.slices
			ch := newChain(t, c, tensor.F64)
			enlarge(ch.s)
			thin(t, ch.s, v.format)
			ch.leaveBy(v.left)
			checkGradients(t, ch)
			first := ch.batches[ch.exits()[0]].Leaves()
			tokens, departed := 10, v.left
			if v.left == 10 {
				tokens, departed = 0, 0
			}
			if first.Tokens != tokens || first.KeysOnly() != departed {
				t.Errorf("%d tokens behind the exit, of which %d have departed, want %d and %d", first.Tokens, first.KeysOnly(), tokens, departed)
			}
			if end := ch.batches[len(ch.batches)-1]; end.Queries < end.Tokens || end.Tokens > tokens-departed {
				t.Errorf("%d tokens at the head, %d departed, want %d at most", end.Tokens, end.KeysOnly(), tokens-departed)
			}
		})
	}
}

// TestPropagation: the states of tokens that go on are those of a model that computes every
// block for all tokens, and puts back what tokens that left had then.
func TestPropagation(t *testing.T) {
	c := propagating("softmax", 2)
	got := newChain(t, c, tensor.F64)
	enlarge(got.s)
	got.leaveBy(4)
	got.loss()
	c.Kinds = Extensions{}
	twin := newChain(t, c, tensor.F64)
	var states []float64
	for i, l := range got.s.Layers[:len(got.s.Layers)-1] {
		b := got.batches[i]
		rows := map[int]int{} // by token
		for row := range b.Tokens {
			rows[int(b.At(row))] = row
		}
		if l.Kind == Exit {
			continue
		}
		at := slices.IndexFunc(twin.s.Layers, func(o *Layer) bool { return o.Name == l.Name })
		copy(tensor.Of[float64](twin.s.Layers[at].w), tensor.Of[float64](l.w))
		inp := tensor.From(slices.Clone(states))
		twin.s.Layers[at].Feed(twin.x, twin.b, twin.saved[at], twin.tokens, twin.targets)
		must(t, twin.s.Layers[at].Forward(twin.x, twin.b, twin.saved[at], inp))
		before := states
		states = slices.Clone(tensor.Of[float64](twin.s.Layers[at].Output(twin.x, twin.b, twin.saved[at])))
		out := tensor.Of[float64](l.Output(got.x, b, got.saved[i]))
		for token := range twin.x.N() {
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

// TestSubsetOfDeparted: tokens that have departed follow the others, wherever the batch is
// copied, and all are there.
func TestSubsetOfDeparted(t *testing.T) {
	x := newChain(t, propagating("softmax", 2), tensor.F64).x
	made := func(index []int32) *Subset {
		s := NewSubset(x, &Heap{Device: x.Device})
		copy(tensor.Of[int32](s.host), index)
		return s
	}
	s, other := made([]int32{1, 2, 7, ^5, ^0, ^3, ^4, ^6, ^8, ^9}), made(nil)
	must(t, s.Select(10))
	must(t, other.Copy(&s.Batch))
	for _, b := range []*Batch{&s.Batch, &other.Batch, other.Enter(&s.Batch)} {
		picked := b.Pick([]int32{0, 10, 20, 30, 40, 50, 60, 70, 80, 90})
		if b.Tokens != 10 || b.KeysOnly() != 7 || b.At(2) != 7 || b.At(3) != 5 || !slices.Equal(picked, []int32{10, 20, 70}) ||
			!slices.Equal(tensor.Of[int32](b.Offsets), []int32{0, 5, 10}) || b.Longest != 5 {
			t.Errorf("%+v, data %v", b, picked)
		}
	}
	for want, index := range map[string][]int32{
		"others are not there": {1, ^2}, "do not ascend": {^3, 4}, "do not ascend ": {1, ^10},
	} {
		if err := made(index).Select(len(index)); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%v: %v, want %q", index, err, want)
		}
	}
}
