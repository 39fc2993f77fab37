package model

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// exiting is a chain with exits behind its first and its second block.
func exiting(confidence string, threshold float64) Config {
	c := small
	c.Blocks, c.Tied = 3, true
	c = c.With(Exits{After: "1,2", Confidence: confidence, Threshold: threshold, Probe: 0.4, Weight: 0.3})
	return c
}

// untold returns the losses of an exit that no reading tells: of its probes, with their
// weight, and of its classifier.
func (c *chain) untold(layer int) (probes, classifier float64) {
	e, is := c.s.Layers[layer].parts[0].(*exit)
	if !is || c.batches[layer].Tokens == 0 {
		return 0, 0
	}
	d := c.work[layer].(*departure)
	s, _ := e.saved(c.x, c.batches[layer], c.saved[layer], len(d.rows))
	if len(d.rows) > d.left {
		probes = e.Weight * tensor.Of[float64](s.probes)[0]
	}
	if len(d.rows) > 0 {
		classifier = tensor.Of[float64](s.classifier)[0]
	}
	return probes, classifier
}

// objective returns what a parameter is trained for: that of a classifier for what it
// says, all others for the loss, with no part in what a classifier says.
func (c *chain) objective(p *Param) float64 {
	loss := c.loss()
	if !strings.HasPrefix(p.Name, "classifier") {
		return loss
	}
	sum := 0.0
	for i, l := range c.s.Layers {
		if slices.Contains(l.Params(), p) {
			_, loss := c.untold(i)
			sum += loss
		}
	}
	return sum * c.x.Scale
}

// TestGradientOfExits compares every gradient with the central difference of the losses at
// exits and at the end: the routing does not change over so small a difference.
func TestGradientOfExits(t *testing.T) {
	for _, confidence := range []string{"classifier", "saturation", "softmax"} {
		for _, left := range []int{0, 5, 10} { // of 10 tokens, at the first exit
			t.Run(fmt.Sprintf("%s/%d leave", confidence, left), func(t *testing.T) {
				c := exiting(confidence, 2)
				c.Tied, c.HalfGrain = left != 5, left == 0
				ch := newChain(t, c, tensor.F64)
				enlarge(ch.s)
				ch.loss()
				exits := slices.Collect(func(yield func(int) bool) {
					for i, l := range ch.s.Layers {
						if l.Kind == Exit {
							yield(i)
						}
					}
				})
				d := ch.work[exits[0]].(*departure)
				confidences := slices.Sorted(slices.Values(d.confidence))
				if left > 0 {
					threshold := (confidences[10-left] + slices.Concat([]float64{-1}, confidences)[10-left]) / 2
					ch.s.Layers[exits[0]].SetThreshold(threshold)
					ch.s.Layers[exits[1]].SetThreshold(threshold)
				}
				checkGradients(t, ch)
				if d.left != left || left < 10 && len(d.rows) == left {
					t.Errorf("%d of %d with a loss left, want %d and probes", d.left, len(d.rows), left)
				}
				leaves := ch.batches[exits[0]].Leaves().Tokens
				if want := float64(left); leaves != 10-left || d.counts[1] != want || d.around[1+exitReach] != want {
					t.Errorf("%d went on, counts %v, around %v, want %d gone", leaves, d.counts, d.around, left)
				}
			})
		}
	}
}

// TestExitThatLetsNoneOut: a chain with exits that no token takes, and no probes, computes
// what the chain without them does, bit for bit.
func TestExitThatLetsNoneOut(t *testing.T) {
	for i, confidence := range []string{"classifier", "saturation", "softmax", "classifier", "saturation"} {
		c := exiting(confidence, 1.5)
		Edit(&c, func(k *Exits) { k.Weight, k.Propagate = 0, i > 2 })
		dense := c
		dense.Kinds = Extensions{}
		got, want := newChain(t, c, tensor.F32), newChain(t, dense, tensor.F32)
		got.gradients()
		want.gradients()
		if got.loss() != want.loss() {
			t.Errorf("%s: loss %v, want %v", confidence, got.loss(), want.loss())
		}
		at := 0
		for _, l := range got.s.Layers {
			if l.Kind == Exit {
				for _, g := range tensor.Of[float32](l.g) {
					if g != 0 {
						t.Fatalf("%s: %s has a gradient", confidence, l.Name)
					}
				}
				continue
			}
			if !slices.Equal(tensor.Of[float32](l.g), tensor.Of[float32](want.s.Layers[at].g)) {
				t.Errorf("%s: other gradients of %s", confidence, l.Name)
			}
			at++
		}
	}
}

// TestThresholdIsState: it moves with its layer and is part of its hash; another layer has
// none.
func TestThresholdIsState(t *testing.T) {
	c := exiting("classifier", 0.5)
	ch := newChain(t, c, tensor.F32)
	l := ch.s.Layers[2]
	before, err := l.Hash()
	must(t, err)
	l.SetThreshold(0.25)
	after, err := l.Hash()
	must(t, err)
	if before == after {
		t.Error("the hash does not depend on the threshold")
	}
	moved, err := Restore(c, l.Sections(), ch.x.Device, tensor.F32)
	must(t, err)
	if got, ok := moved.Threshold(); !ok || got != 0.25 {
		t.Errorf("threshold %v, %v, want 0.25", got, ok)
	}
	if _, ok := ch.s.Layers[1].Threshold(); ok {
		t.Error("a block has a threshold")
	}
	_, err = Restore(c, []Section{{Name: headerSection, Text: []byte(`{"layer":1,"threshold":0.5}`)}}, ch.x.Device, tensor.F32)
	if err == nil || !strings.Contains(err.Error(), "a threshold of a layer that is no exit") {
		t.Errorf("a block with a threshold: %v", err)
	}
}

// TestProbes: they are drawn by the microbatch's data, among the tokens that go on, as many
// as was asked for.
func TestProbes(t *testing.T) {
	c := exiting("classifier", 1)
	c.Sequence = 500
	Edit(&c, func(k *Exits) { k.Probe = 0.1 })
	ch := newChain(t, c, tensor.F32)
	ch.loss()
	first := slices.Clone(ch.work[2].(*departure).rows)
	if n := float64(len(first)); math.Abs(n-100) > 40 || !slices.IsSorted(first) {
		t.Errorf("%v probes of 1000 tokens, want about 100", n)
	}
	ch.loss()
	if again := ch.work[2].(*departure).rows; !slices.Equal(first, again) {
		t.Error("the same data have other probes")
	}
	ch.targets[7]++
	ch.targets[7] %= int32(c.Vocab)
	ch.loss()
	if other := ch.work[2].(*departure).rows; slices.Equal(first, other) {
		t.Error("other data have the same probes")
	}
	if other := ch.work[4].(*departure).rows; slices.Equal(first, other) {
		t.Error("another exit has the same probes")
	}
}

// TestExitsForget: what a microbatch leaves behind in memory does not matter to the next.
func TestExitsForget(t *testing.T) {
	ch := newChain(t, exiting("softmax", 0.3), tensor.F64)
	enlarge(ch.s)
	want := ch.loss()
	for _, m := range ch.saved {
		host, err := device.Read(ch.x.Device, m)
		must(t, err)
		for i := range tensor.Of[byte](host) {
			tensor.Of[byte](m)[i] = 0xff
		}
	}
	if got := ch.loss(); got != want {
		t.Errorf("loss %v, want %v", got, want)
	}
}
