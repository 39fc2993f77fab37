package ref

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// gradients asserts that the backward pass of a call is the derivative of its
// forward pass. The objective is Σ out·dout for a random dout.
type gradients struct {
	t *testing.T
	*rand.Rand
}

func newGradients(t *testing.T) gradients { return gradients{t, rand.New(rand.NewPCG(3, 4))} }

func (r gradients) normal(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	return x
}

// agree compares grad, which the backward pass has added to start, with the
// five-point central difference of objective, which reads x. At h = 1e-3 its
// error is of the order h⁴ = 1e-12, and so is its rounding; 1e-8 of the largest
// element is asserted.
func (r gradients) agree(name string, x, grad, start []float64, objective func() float64) {
	r.t.Helper()
	const h = 1e-3
	largest, worst := 0.0, 0.0
	for i := range x {
		at := x[i]
		f := func(steps float64) float64 { x[i] = at + steps*h; return objective() }
		want := (8*(f(1)-f(-1)) - (f(2) - f(-2))) / (12 * h)
		x[i] = at
		largest = max(largest, math.Abs(want))
		worst = max(worst, math.Abs(grad[i]-start[i]-want)) // max keeps a NaN
	}
	if !(worst <= 1e-8*largest) {
		r.t.Errorf("%s: off by %.2g, largest element %.2g", name, worst, largest)
	}
}

// added returns a start for a gradient that is added to, and a copy to add to.
func (r gradients) added(n int) (start, grad []float64) {
	start = r.normal(n)
	return start, append([]float64(nil), start...)
}

func TestEmbeddingGradient(t *testing.T) {
	const n, c, v, places = 10, 3, 4, 5
	r := newGradients(t)
	tokens, positions := []int32{0, 3, 3, 1, 0, 2, 2, 2, 3, 0}, []int32{0, 1, 3, 4, 0, 1, 1, 2, 3, 4}
	wte, wpe, dout := r.normal(v*c), r.normal(places*c), r.normal(n*c)
	startToken, dwte := r.added(len(wte))
	startPosition, dwpe := r.added(len(wpe))
	embeddingBackward(dwte, dwpe, dout, tokens, positions, c)
	objective := func() float64 {
		out := make([]float64, n*c)
		embeddingForward(out, tokens, positions, wte, wpe, c)
		return dot(out, dout)
	}
	r.agree("dwte", wte, dwte, startToken, objective)
	r.agree("dwpe", wpe, dwpe, startPosition, objective)
}

func TestNormGradient(t *testing.T) {
	for _, centred := range []bool{true, false} { // LayerNorm, RMSNorm
		const n, c, eps = 7, 9, 1e-5
		r := newGradients(t)
		inp, weight, bias, dout := r.normal(n*c), r.normal(c), r.normal(c), r.normal(n*c)
		mean, rstd := make([]float64, n), make([]float64, n)
		if !centred {
			mean, bias = nil, nil
		}
		objective := func() float64 {
			out := make([]float64, n*c)
			NormForward(out, mean, rstd, inp, weight, bias, n, c, eps)
			return dot(out, dout)
		}
		objective() // stores mean and rstd
		startInp, dinp := r.added(n * c)
		startWeight, dweight := r.added(c)
		startBias, dbias := r.added(len(bias))
		normBackwardInput(dinp, dout, inp, mean, rstd, weight, n, c)
		normBackwardWeight(dweight, dbias, dout, inp, mean, rstd, n, c)
		r.agree("dinp", inp, dinp, startInp, objective)
		r.agree("dweight", weight, dweight, startWeight, objective)
		r.agree("dbias", bias, dbias, startBias, objective)
	}
}

func TestMatmulGradient(t *testing.T) {
	const n, c, o = 7, 5, 6
	r := newGradients(t)
	inp, weight, bias, dout := r.normal(n*c), r.normal(o*c), r.normal(o), r.normal(n*o)
	objective := func() float64 {
		out := make([]float64, n*o)
		MatmulForward(out, inp, weight, bias, n, c, o)
		return dot(out, dout)
	}
	dinp := make([]float64, n*c)
	startWeight, dweight := r.added(o * c)
	startBias, dbias := r.added(o)
	matmulBackwardInput(dinp, dout, weight, n, c, o)
	matmulBackwardWeight(dweight, dbias, dout, inp, n, c, o)
	r.agree("dinp", inp, dinp, make([]float64, n*c), objective)
	r.agree("dweight", weight, dweight, startWeight, objective)
	r.agree("dbias", bias, dbias, startBias, objective)
}

func TestCSRGradient(t *testing.T) {
	const n = 7
	r := newGradients(t)
	w := csr[float64]{
		Rows: 4, Cols: 5,
		RowPtr: []int32{0, 3, 3, 4, 6}, ColIdx: []int32{0, 2, 4, 1, 0, 4},
		Values: r.normal(6),
	}
	inp, bias, dout := r.normal(n*w.Cols), r.normal(w.Rows), r.normal(n*w.Rows)
	objective := func() float64 {
		out := make([]float64, n*w.Rows)
		spMMForward(out, inp, w, bias, n)
		return dot(out, dout)
	}
	dinp := make([]float64, n*w.Cols)
	startValues, dvalues := r.added(len(w.Values))
	startBias, dbias := r.added(w.Rows)
	spMMBackwardInput(dinp, dout, w, n)
	sddmm(dvalues, dbias, dout, inp, w, n)
	r.agree("dinp", inp, dinp, make([]float64, n*w.Cols), objective)
	r.agree("dvalues", w.Values, dvalues, startValues, objective)
	r.agree("dbias", bias, dbias, startBias, objective)
}

func TestAttentionGradient(t *testing.T) {
	const n, longest, c, nh = 12, 6, 8, 4
	offsets := []int32{0, 5, 5, 6, 12} // sequences of 5, 0, 1 and 6 tokens
	for _, kv := range []int{nh, 2, 1} {
		r := newGradients(t)
		qkv, dout := r.normal(n*rowWidth(c, nh, kv)), r.normal(n*c)
		out, lse := make([]float64, n*c), make([]float64, nh*n)
		objective := func() float64 {
			attentionForward(out, lse, qkv, offsets, longest, c, nh, kv)
			return dot(out, dout)
		}
		objective() // stores out and lse
		dqkv := make([]float64, len(qkv))
		attentionBackward(dqkv, dout, qkv, out, lse, offsets, longest, c, nh, kv)
		r.agree("dqkv", qkv, dqkv, make([]float64, len(qkv)), objective)
	}
}

func TestRotaryGradient(t *testing.T) {
	const heads, hs, width = 2, 4, 11
	r, positions := newGradients(t), []int32{0, 2, 1}
	qkv, table, dout := r.normal(len(positions)*width), r.normal(3*hs), r.normal(len(positions)*width)
	objective := func() float64 {
		out := slices.Clone(qkv)
		rotary(out, positions, table, heads, width, hs, false)
		return dot(out, dout)
	}
	dqkv := slices.Clone(dout)
	rotary(dqkv, positions, table, heads, width, hs, true)
	r.agree("dqkv", qkv, dqkv, make([]float64, len(qkv)), objective)
}

func TestSwiGLUGradient(t *testing.T) {
	const n, c = 5, 7
	r := newGradients(t)
	gateup, dout := r.normal(n*2*c), r.normal(n*c)
	objective := func() float64 {
		out := make([]float64, n*c)
		swiGLUForward(out, gateup, n, c)
		return dot(out, dout)
	}
	dgateup := make([]float64, n*2*c)
	swiGLUBackward(dgateup, dout, gateup, n, c)
	r.agree("dgateup", gateup, dgateup, make([]float64, n*2*c), objective)
}

// TestCombineGradient has rows that count twice, rows that do not, and absent ones.
func TestCombineGradient(t *testing.T) {
	const n, k, c, table = 3, 2, 4, 5
	r, rows := newGradients(t), []int32{0, 3, -1, 3, 4, 0}
	inp, factor, dout := r.normal(table*c), r.normal(n*k), r.normal(n*c)
	objective := func() float64 {
		out := make([]float64, n*c)
		combineRows(out, inp, rows, factor, n, k, c)
		return dot(out, dout)
	}
	dfactor := make([]float64, n*k)
	combineGradient(dfactor, dout, inp, rows, n, k, c)
	r.agree("dfactor", factor, dfactor, make([]float64, n*k), objective)
}

func TestGELUGradient(t *testing.T) {
	const n = 50
	r := newGradients(t)
	inp, dout := r.normal(n), r.normal(n)
	objective := func() float64 {
		out := make([]float64, n)
		geluForward(out, inp)
		return dot(out, dout)
	}
	dinp := make([]float64, n)
	geluBackward(dinp, inp, dout)
	r.agree("dinp", inp, dinp, make([]float64, n), objective)
}

func TestCrossEntropyGradient(t *testing.T) {
	const n, v, scale = 5, 7, 0.2
	r := newGradients(t)
	logits, targets := r.normal(n*v), []int32{0, 6, 3, 3, 1}
	objective := func() float64 {
		overwritten := append([]float64(nil), logits...)
		return scale * crossEntropy(make([]float64, 3*n), nil, overwritten, targets, scale, n, v, 0)
	}
	dlogits := append([]float64(nil), logits...)
	crossEntropy(make([]float64, 3*n), nil, dlogits, targets, scale, n, v, 0)
	r.agree("dlogits", logits, dlogits, make([]float64, n*v), objective)
}
