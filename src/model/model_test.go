package model_test

import (
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
	"fmt"
	"math"
	"slices"
	"testing"
)

// TestGradientOfTheWholeModel compares every gradient with the central
// difference of the loss, in float64, whatever the formats of the matrices.
func TestGradientOfTheWholeModel(t *testing.T) {
	for _, tied := range []bool{false, true} {
		for _, half := range []bool{false, true} {
			for _, k := range []int{1, 2, 4} {
				for _, format := range []model.Format{model.Dense, model.Masked, model.CSR} {
					t.Run(fmt.Sprintf("tied=%v/half=%v/slices=%d/%v", tied, half, k, format), func(t *testing.T) {
						c := modeltest.Small
						c.Tied, c.HalfGrain, c.HeadShards = tied, half, k
						ch := modeltest.New(t, c, tensor.F64)
						modeltest.Enlarge(ch.S)
						modeltest.Thin(t, ch.S, format)
						modeltest.CheckGradients(t, ch)
					})
				}
			}
		}
	}
}

// TestBatchOfSomeTokens: passes see the tokens that are there and no others,
// whatever the capacity of their memory: gradients are those of the loss, and the
// loss is that of the sequences one by one.
func TestBatchOfSomeTokens(t *testing.T) {
	for _, slices := range []int{1, 3} {
		for _, format := range []model.Format{model.Dense, model.CSR} {
			c := modeltest.Small
			c.Tied, c.HalfGrain, c.HeadShards = true, slices > 1, slices
			ch := modeltest.New(t, c, tensor.F64)
			modeltest.Enlarge(ch.S)
			modeltest.Thin(t, ch.S, format)
			for _, m := range ch.Saved { // what is beyond the tokens must not matter
				for i := range tensor.Of[float64](m.Kept.Span(0, m.Kept.Bytes/8*8)) {
					tensor.Of[float64](m.Kept.Span(0, m.Kept.Bytes/8*8))[i] = math.NaN()
				}
			}
			ch.Some(4, 1, 3)
			modeltest.CheckGradients(t, ch)
			want, tokens, targets, sum := ch.Loss(), ch.Tokens, ch.Targets, 0.0
			for at, n := 0, 0; at < len(tokens); at += n {
				n = []int{4, 1, 3}[map[int]int{0: 0, 4: 1, 5: 2}[at]]
				ch.Tokens, ch.Targets = tokens[at:at+n], targets[at:at+n]
				ch.Some(n)
				sum += ch.Loss()
			}
			if math.Abs(sum-want) > 1e-12 {
				t.Errorf("%d slices, %v: loss %v, that of the sequences alone %v", slices, format, want, sum)
			}
		}
	}
}

// TestCompress: compression keeps the chosen entries, in either format, with their moments.
func TestCompress(t *testing.T) {
	ch := modeltest.New(t, modeltest.Small, tensor.F32)
	l := ch.S.Layers[1]
	p := l.Params()[0]
	before := append([]float32(nil), tensor.Of[float32](p.W)...)
	moments := tensor.Of[float32](p.M)
	for i := range moments {
		moments[i] = float32(i)
	}
	modeltest.Thin(t, &model.Stage{Layers: ch.S.Layers[1:2]}, model.Masked)
	p = l.Params()[0]
	for i, w := range tensor.Of[float32](p.W) {
		want, moment := before[i], float32(i)
		if i%3 == 0 {
			want, moment = 0, 0
		}
		if w != want || tensor.Of[float32](p.M)[i] != moment {
			t.Fatalf("masked %d: %v (moment %v), want %v (%v)", i, w, tensor.Of[float32](p.M)[i], want, moment)
		}
	}
	// Of what is left keep the even places; every row of CSR ascends.
	keep := model.NewMask(p)
	for i := range p.Stored() {
		if i%3 != 0 && i%2 == 0 {
			keep.Set(i)
		}
	}
	expect.OK(t, l.Compress(map[int]model.Mask{0: keep}, 0.5))
	p = l.Params()[0]
	if p.Format != model.CSR || p.NNZ != keep.Count() {
		t.Fatalf("format %v with %d values, want csr with %d", p.Format, p.NNZ, keep.Count())
	}
	rows, cols, n := tensor.Of[int32](p.RowPtr), tensor.Of[int32](p.ColIdx), 0
	for r := range p.Rows {
		for k := rows[r]; k < rows[r+1]; k++ {
			at := r*p.Cols + int(cols[k])
			if !keep.Has(at) || tensor.Of[float32](p.W)[k] != before[at] || tensor.Of[float32](p.M)[k] != float32(at) {
				t.Fatalf("csr row %d: wrong entry %d", r, k)
			}
			n++
		}
	}
	if n != p.NNZ {
		t.Errorf("%d entries in rows, want %d", n, p.NNZ)
	}
	if other := l.Params()[1]; other.Format != model.Masked {
		t.Errorf("%s changed its format to %v", other.Name, other.Format)
	}
}

// TestGrainsStartAlike: a block and its halves hold the same weights.
func TestGrainsStartAlike(t *testing.T) {
	half := modeltest.Small
	half.HalfGrain = true
	a, b := modeltest.New(t, modeltest.Small, tensor.F32), modeltest.New(t, half, tensor.F32)
	if x, y := a.Loss(), b.Loss(); x != y {
		t.Errorf("loss %v with whole blocks, %v with halves", x, y)
	}
	if ln := math.Log(float64(modeltest.Small.Vocab)); math.Abs(a.Loss()-ln) > 0.1 {
		t.Errorf("initial loss %v, want about ln(vocab) = %v", a.Loss(), ln)
	}
}

// TestSlicesComputeTheHead: a head in slices starts with the weights of a whole head. Loss and
// gradients are equal up to rounding.
func TestSlicesComputeTheHead(t *testing.T) {
	want := modeltest.New(t, modeltest.Small, tensor.F64)
	modeltest.Enlarge(want.S)
	want.Gradients()
	head := want.S.Layers[HeadOf(modeltest.Small)]
	for _, n := range []int{2, 3, modeltest.Small.Vocab} {
		c := modeltest.Small
		c.HeadShards = n
		got := modeltest.New(t, c, tensor.F64)
		modeltest.Enlarge(got.S)
		got.Gradients()
		if x, y := got.Loss(), want.Loss(); math.Abs(x-y) > 1e-12 {
			t.Errorf("%d slices: loss %v, want %v", n, x, y)
		}
		for i, l := range want.S.Layers[:HeadOf(modeltest.Small)] {
			Near(t, l.Name, got.S.Layers[i].Gradient(), l.Gradient())
		}
		var weights, gradients []float64
		for _, l := range got.S.Layers[HeadOf(modeltest.Small):] {
			p := param(l, "head.weight")
			weights = append(weights, tensor.Of[float64](p.W)...)
			gradients = append(gradients, tensor.Of[float64](p.G)...)
		}
		whole := param(head, "head.weight")
		if !slices.Equal(weights, tensor.Of[float64](whole.W)) {
			t.Errorf("%d slices: other initial weights", n)
		}
		Near(t, "head.weight", tensor.From(gradients), whole.G)
	}
}

// HeadOf returns the chain position of the head, the first of its slices.
func HeadOf(c model.Config) int {
	return slices.IndexFunc(c.Chain(), func(d model.Description) bool { return d.Kind == model.Head })
}

func param(l *model.Layer, name string) *model.Param {
	return l.Params()[slices.IndexFunc(l.Params(), func(p *model.Param) bool { return p.Name == name })]
}

func Near(t *testing.T, name string, got, want tensor.Mem) {
	t.Helper()
	g, w := tensor.Of[float64](got), tensor.Of[float64](want)
	for i := range w {
		if len(g) != len(w) || math.Abs(g[i]-w[i]) > 1e-12 {
			t.Fatalf("%s: element %d of %d is %v, want %v of %d", name, i, len(g), g[i], w[i], len(w))
		}
	}
}

// TestFreeGivesEverythingBack: no slab is forgotten, also after compression.
func TestFreeGivesEverythingBack(t *testing.T) {
	dev := cpu.New(device.NewWall())
	s, err := model.NewStage(modeltest.Small, modeltest.Small.All(), dev, tensor.F32)
	expect.OK(t, err)
	modeltest.Thin(t, s, model.CSR)
	s.Free()
	if dev.Used() != 0 {
		t.Errorf("%d bytes are still in use", dev.Used())
	}
}

// TestBytes: what layers say they need, built or not, is what one microbatch's
// way through them takes.
func TestBytes(t *testing.T) {
	tied, slices, halves := modeltest.Small, modeltest.Small, modeltest.Small
	tied.Tied, slices.HeadShards, halves.HalfGrain = true, 3, true
	for name, c := range map[string]model.Config{"small": modeltest.Small, "tied": tied, "slices": slices, "halves": halves} {
		t.Run(name, func(t *testing.T) { modeltest.New(t, c, tensor.F32).CheckBytes(t) })
	}
}
