package mod

import (
	"dynmo/src/config"
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

// deep returns small with a routed block between two others.
func deep(d Depths) model.Config {
	c := modeltest.Small
	c.Blocks = 3
	if d != (Depths{}) {
		c = c.With(d)
	}
	return c
}

// readRouting returns a reading of a layer that routes.
func readRouting(c *modeltest.Chain, layer int) []float64 {
	return tensor.Of[float64](c.S.Layers[layer].Reading(c.X, c.Batches[layer], c.Saved[layer], 0))
}

// TestGradientOfRoutedBlocks compares every gradient with the central difference of the loss and
// the routers' own losses, and the predictors' gradients with that of theirs. It uses whole
// sequences, some of their tokens, empty sequences, and none at all.
func TestGradientOfRoutedBlocks(t *testing.T) {
	for name, d := range map[string]Depths{
		"topk":              {Capacity: 0.5, Auxiliary: 0.3},
		"one of a sequence": {Capacity: 0.01},
		"all":               {Capacity: 1, Auxiliary: 0.1},
		"open gate":         {Capacity: 0.4, One: true, Auxiliary: 1},
		"predictor":         {Capacity: 0.4, Predictor: true, Threshold: 0.5, Auxiliary: 0.2},
		"predictor, none":   {Capacity: 0.4, Predictor: true, Threshold: 1, Auxiliary: 0.2},
		"predictor, all":    {Capacity: 0.4, Predictor: true, Threshold: 0},
	} {
		for behind, rows := range map[string][]int32{"": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, "some": {0, 2, 3, 4, 6, 9}, "one sequence": {5, 6, 8}, "one token": {3}, "none": {}} {
			if behind != "" && behind != "some" && name != "topk" && name != "predictor" {
				continue
			}
			for _, half := range []bool{false, true} {
				if half && behind != "some" {
					continue
				}
				t.Run(fmt.Sprintf("%s/behind=%s/half=%v", name, behind, half), func(t *testing.T) {
					c := deep(d)
					c.Tied, c.HalfGrain = true, half
					if behind != "" {
						c = c.With(&modeltest.Selecting{Rows: map[int][]int32{0: rows}})
					}
					ch := modeltest.New(t, c, tensor.F64)
					modeltest.Enlarge(ch.S)
					checkGradientsOfRouting(t, ch, d)
				})
			}
		}
	}
}

// checkGradientsOfRouting checks all gradients but the predictors', then those.
func checkGradientsOfRouting(t *testing.T, ch *modeltest.Chain, d Depths) {
	t.Helper()
	at := slices.IndexFunc(ch.S.Layers, func(l *model.Layer) bool { return l.Form == Routed })
	ch.Also = func() float64 { return d.Auxiliary * readRouting(ch, at)[3] / 1000 }
	predictors := func(p *model.Param) bool { return strings.HasPrefix(p.Name, "predictor.") }
	modeltest.CheckSomeGradients(t, ch, func(p *model.Param) bool { return !predictors(p) })
	ch.Also = func() float64 { return readRouting(ch, at)[4]/1000 - HeadLoss(ch) }
	modeltest.CheckSomeGradients(t, ch, predictors)
}

// HeadLoss returns the sum of the losses of the head.
func HeadLoss(c *modeltest.Chain) float64 {
	last := len(c.S.Layers) - 1
	return tensor.Of[float64](c.S.Layers[last].Reading(c.X, c.Batches[last], c.Saved[last], 0))[0]
}

// TestWholeCapacityIsDense: blocks that take all tokens, with a gate that is open, are
// those of the dense model: the same bits of the loss and of every gradient but the
// router's.
func TestWholeCapacityIsDense(t *testing.T) {
	for _, precision := range []tensor.DType{tensor.F32, tensor.F64} {
		dense := modeltest.New(t, deep(Depths{}), precision)
		dense.Gradients()
		for name, d := range map[string]Depths{
			"topk":      {Capacity: 1, One: true},
			"predictor": {Capacity: 0.3, One: true, Predictor: true},
		} {
			ch := modeltest.New(t, deep(d), precision)
			ch.Gradients()
			if x, y := ch.Loss(), dense.Loss(); x != y {
				t.Errorf("%s: loss %v, dense %v", name, x, y)
			}
			for i, l := range dense.S.Layers {
				for _, p := range l.Params() {
					got := ch.S.Layers[i].Param(p.Weight)
					if !slices.Equal(tensor.Of[byte](got.W), tensor.Of[byte](p.W)) || !modeltest.SameValues(got.G, p.G, precision) {
						t.Errorf("%s, %v: %s has other values than in the dense model", name, precision, p.Weight)
					}
				}
			}
		}
	}
}

// TestRouting: first of a sequence are those with the largest logits, of equal ones the
// earlier; a predictor takes those above its threshold; the counts say what was done.
func TestRouting(t *testing.T) {
	logits := []float64{1, 3, 3, -2, 0, 5, 5, 5, 5, math.NaN()}
	guesses := []float64{-1, 1, -1, -1, 1, -1, 9, -9, 0, 1}
	for name, c := range map[string]struct {
		Depths
		taken  []int32
		counts []float64
	}{
		"two of five":      {Depths{Capacity: 0.4}, []int32{1, 2, 5, 6}, []float64{10, 4, 7}},
		"rounded up":       {Depths{Capacity: 0.21}, []int32{1, 2, 5, 6}, []float64{10, 4, 7}},
		"at least one":     {Depths{Capacity: 1e-12}, []int32{1, 5}, []float64{10, 2, 5}},
		"no NaN first":     {Depths{Capacity: 0.8}, []int32{0, 1, 2, 4, 5, 6, 7, 8}, []float64{10, 8, 9}},
		"predictor":        {Depths{Capacity: 0.4, Predictor: true, Threshold: 0.5}, []int32{1, 4, 6, 9}, []float64{10, 4, 6}},
		"a high threshold": {Depths{Capacity: 0.4, Predictor: true, Threshold: 0.99}, []int32{6}, []float64{10, 1, 7}},
	} {
		ch := modeltest.New(t, deep(c.Depths), tensor.F64)
		ch.Loss()
		r, b := ch.S.Layers[2].Parts[0].(*routed), ch.Batches[2]
		s := r.saved(ch.X, ch.X.Cut(b, ch.Saved[2].Kept))
		copy(tensor.Of[float64](s.logits), logits)
		copy(tensor.Of[float64](s.guess), guesses)
		expect.OK(t, r.decide(ch.X, b, s))
		rows, _, _ := s.decided.of(ch.X, ch.Work[2].(*inner).inside.Tokens)
		if got := tensor.Of[int32](rows); !slices.Equal(got, c.taken) {
			t.Errorf("%s: took %v, want %v", name, got, c.taken)
		}
		if counts := readRouting(ch, 2)[:3]; !slices.Equal(counts, c.counts) {
			t.Errorf("%s: counts %v, want %v", name, counts, c.counts)
		}
	}
}

// counting counts how often a stream is waited for.
type counting struct {
	device.Stream
	count int
}

func (c *counting) Sync() error { c.count++; return c.Stream.Sync() }

// TestRoutedBlocksWait: passes of a routed block wait for the device where a predictor
// decides, once in its forward, and else not at all.
func TestRoutedBlocksWait(t *testing.T) {
	for name, c := range map[string]struct {
		Depths
		want int
	}{
		"topk":      {Depths{Capacity: 0.4, Auxiliary: 0.2}, 0},
		"predictor": {Depths{Capacity: 0.4, Predictor: true, Threshold: 0.5}, 1},
	} {
		ch := modeltest.New(t, deep(c.Depths), tensor.F32)
		stream := &counting{Stream: ch.X.Stream}
		ch.X.Stream = stream
		ch.Gradients()
		if stream.count != c.want {
			t.Errorf("%s: passes waited %d times, want %d", name, stream.count, c.want)
		}
		if l := ch.S.Layers[2]; l.Traits.Waits != (c.want > 0) {
			t.Errorf("%s: Waits is %v", name, l.Traits.Waits)
		}
	}
}

// TestDepthsFromSettings: only with its kind is there a mixture of depths, in every second
// block, which half grain leaves whole.
func TestDepthsFromSettings(t *testing.T) {
	c := config.Default()
	if d := model.KindOf[Depths](model.FromConfig(c)); d != (Depths{}) {
		t.Errorf("without the kind: %+v", d)
	}
	c.Dynamic.Kind, c.Model.Grain, c.Model.Blocks = "mod", "half", 5
	shape := model.FromConfig(c)
	if want := (Depths{Capacity: 0.125, Threshold: 0.5, Auxiliary: 0.01}); model.KindOf[Depths](shape) != want {
		t.Errorf("%+v, want %+v", model.KindOf[Depths](shape), want)
	}
	want := "embedding block.0.attention block.0.mlp block.1 block.2.attention block.2.mlp block.3 block.4.attention block.4.mlp head"
	if got := strings.Join(shape.Names(), " "); got != want || c.Layers() != shape.Layers() {
		t.Errorf("%d layers: %s, want %s", c.Layers(), got, want)
	}
}

// TestBytesOfRoutedBlocks: room is for as many tokens as can be taken.
func TestBytesOfRoutedBlocks(t *testing.T) {
	x := modeltest.New(t, modeltest.Small, tensor.F32).X
	bytes := func(d Depths) int64 { return model.Outline(deep(d), x)[2].Bytes.Activations }
	half, most := bytes(Depths{Capacity: 0.4}), bytes(Depths{Capacity: 1})
	if predicted := bytes(Depths{Capacity: 0.4, Predictor: true}); half >= most || predicted <= most {
		t.Errorf("activations of %d bytes at capacity 0.4, %d at 1, %d with a predictor", half, most, predicted)
	}
}
