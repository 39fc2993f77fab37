package exit

import (
	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// exiting is a chain with exits behind its first and its second block.
func exiting(confidence string, threshold float64) model.Config {
	c := modeltest.Small
	c.Blocks, c.Tied = 3, true
	c = c.With(Exits{After: "1,2", Confidence: confidence, Threshold: threshold, Probe: 0.4, Weight: 0.3})
	return c
}

// newChain returns a chain that is trained for the losses of exits too.
func newChain(t *testing.T, c model.Config, d tensor.DType) *modeltest.Chain {
	t.Helper()
	ch := modeltest.New(t, c, d)
	ch.Untold = func(layer int) float64 {
		probes, _ := untold(ch, layer)
		return probes
	}
	ch.Objective = func(p *model.Param) float64 { return objective(ch, p) }
	return ch
}

// untold returns the losses of an exit that no reading tells: of its probes, with their
// weight, and of its classifier.
func untold(c *modeltest.Chain, layer int) (probes, classifier float64) {
	e, is := c.S.Layers[layer].Parts[0].(*exit)
	if !is || c.Batches[layer].Tokens == 0 {
		return 0, 0
	}
	d := c.Work[layer].(*departure)
	s, _ := e.saved(c.X, c.Batches[layer], c.Saved[layer].Kept, len(d.rows))
	if len(d.rows) > d.left {
		probes = e.weight * tensor.Of[float64](s.probes)[0]
	}
	if n := len(d.rows); n > 0 && e.learns() {
		stats, labelled := tensor.Of[float64](s.verdictStats), 0
		for _, label := range d.found[:n] {
			labelled += int(label)
		}
		for i, label := range d.found[:n] {
			weight := float64(labelled) / float64(n) // of a token with the label 0
			if label == 1 {
				weight = 1 - weight
			}
			classifier += weight * (stats[i] + math.Log(stats[n+i]) - stats[2*n+i])
		}
	}
	return probes, classifier
}

// objective returns the objective of a parameter. A classifier's is its own cross-entropy. That of
// all others is the loss without the classifiers' part.
func objective(c *modeltest.Chain, p *model.Param) float64 {
	loss := c.Loss()
	if !strings.HasPrefix(p.Name, "classifier") {
		return loss
	}
	sum := 0.0
	for i, l := range c.S.Layers {
		if slices.Contains(l.Params(), p) {
			_, loss := untold(c, i)
			sum += loss
		}
	}
	return sum * c.X.Scale
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
				modeltest.Enlarge(ch.S)
				ch.Loss()
				exits := slices.Collect(func(yield func(int) bool) {
					for i, l := range ch.S.Layers {
						if l.Kind == model.Exit {
							yield(i)
						}
					}
				})
				d := ch.Work[exits[0]].(*departure)
				confidences := slices.Sorted(slices.Values(d.confidence))
				if left > 0 {
					threshold := (confidences[10-left] + slices.Concat([]float64{-1}, confidences)[10-left]) / 2
					ch.S.Layers[exits[0]].Tune(threshold)
					ch.S.Layers[exits[1]].Tune(threshold)
				}
				modeltest.CheckGradients(t, ch)
				if d.left != left || left < 10 && len(d.rows) == left {
					t.Errorf("%d of %d with a loss left, want %d and probes", d.left, len(d.rows), left)
				}
				leaves := ch.Batches[exits[0]].Leaves().Tokens
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
		modeltest.Edit(&c, func(k *Exits) { k.Weight, k.Propagate = 0, i > 2 })
		dense := c
		dense.Kinds = model.Extensions{}
		got, want := newChain(t, c, tensor.F32), newChain(t, dense, tensor.F32)
		got.Gradients()
		want.Gradients()
		if got.Loss() != want.Loss() {
			t.Errorf("%s: loss %v, want %v", confidence, got.Loss(), want.Loss())
		}
		at := 0
		for _, l := range got.S.Layers {
			if l.Kind == model.Exit {
				for _, g := range tensor.Of[float32](tensor.From(modeltest.Slab(l, func(p *model.Param) tensor.Mem { return p.G }))) {
					if g != 0 {
						t.Fatalf("%s: %s has a gradient", confidence, l.Name)
					}
				}
				continue
			}
			gradient := func(p *model.Param) tensor.Mem { return p.G }
			if !slices.Equal(modeltest.Slab(l, gradient), modeltest.Slab(want.S.Layers[at], gradient)) {
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
	l := ch.S.Layers[2]
	before, err := l.Hash()
	expect.OK(t, err)
	l.Tune(0.25)
	after, err := l.Hash()
	expect.OK(t, err)
	if before == after {
		t.Error("the hash does not depend on the threshold")
	}
	moved, err := model.Restore(c, l.Sections(), ch.X.Device, tensor.F32)
	expect.OK(t, err)
	if got, ok := moved.Tuning(); !ok || got != 0.25 {
		t.Errorf("threshold %v, %v, want 0.25", got, ok)
	}
	if _, ok := ch.S.Layers[1].Tuning(); ok {
		t.Error("a block has a threshold")
	}
	_, err = model.Restore(c, []model.Section{{Name: "header", Text: []byte(`{"layer":1,"threshold":0.5}`)}}, ch.X.Device, tensor.F32)
	if err == nil || !strings.Contains(err.Error(), "a threshold of a layer that has none") {
		t.Errorf("a block with a threshold: %v", err)
	}
}

// TestProbes: they are drawn by the microbatch's data, among the tokens that go on, as many
// as was asked for.
func TestProbes(t *testing.T) {
	c := exiting("classifier", 1)
	c.Sequence = 500
	modeltest.Edit(&c, func(k *Exits) { k.Probe = 0.1 })
	ch := newChain(t, c, tensor.F32)
	ch.Loss()
	first := slices.Clone(ch.Work[2].(*departure).rows)
	if n := float64(len(first)); math.Abs(n-100) > 40 || !slices.IsSorted(first) {
		t.Errorf("%v probes of 1000 tokens, want about 100", n)
	}
	ch.Loss()
	if again := ch.Work[2].(*departure).rows; !slices.Equal(first, again) {
		t.Error("the same data have other probes")
	}
	ch.Targets[7]++
	ch.Targets[7] %= int32(c.Vocab)
	ch.Loss()
	if other := ch.Work[2].(*departure).rows; slices.Equal(first, other) {
		t.Error("other data have the same probes")
	}
	if other := ch.Work[4].(*departure).rows; slices.Equal(first, other) {
		t.Error("another exit has the same probes")
	}
}

// TestExitsForget: what a microbatch leaves behind in memory does not matter to the next.
func TestExitsForget(t *testing.T) {
	ch := newChain(t, exiting("softmax", 0.3), tensor.F64)
	modeltest.Enlarge(ch.S)
	want := ch.Loss()
	for _, m := range ch.Saved {
		host, err := device.Read(ch.X.Device, m.Kept)
		expect.OK(t, err)
		for i := range tensor.Of[byte](host) {
			tensor.Of[byte](m.Kept)[i] = 0xff
		}
	}
	if got := ch.Loss(); got != want {
		t.Errorf("loss %v, want %v", got, want)
	}
}

// TestReferenceOfAPair: of a block that passes on its states and those that entered it, only
// the former are compared.
func TestReferenceOfAPair(t *testing.T) {
	ch := newChain(t, exiting(saturation, 2), tensor.F64)
	ch.Loss()
	l := ch.S.Layers[1]
	expect.OK(t, l.Refer(ch.X))
	room := model.Heap{Device: ch.X.Device}
	left, err := l.ReferenceForward(ch.X, ch.B, &room, ch.Input(1), ch.Tokens, ch.Targets)
	expect.OK(t, err)
	reference, err := l.Sequences(ch.X, ch.B, left)
	expect.OK(t, err)
	live, err := l.Sequences(ch.X, ch.B, l.Output(ch.X, ch.B, ch.Saved[1]))
	expect.OK(t, err)
	states := tensor.Of[float64](half(l.Output(ch.X, ch.B, ch.Saved[1])))
	got := slices.Concat(live...)
	if len(got) != len(states) || slices.ContainsFunc(states, func(x float64) bool { return !slices.Contains(got, float32(x)) }) {
		t.Errorf("%d values are compared, want the %d of the block's states", len(got), len(states))
	}
	for i := range live {
		if slices.Equal(live[i], reference[i]) {
			t.Errorf("row %d does not depend on the weights", i)
		}
	}
}
