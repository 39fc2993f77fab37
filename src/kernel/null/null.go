// Package null is a backend that does no arithmetic: calls with shapes come
// in, seconds on a clock go out. With a virtual clock it shows what a schedule
// would take on a device of known speed, in almost no time.
//
// Operands are checked as everywhere, and left as they are, except the two
// scalars that a training step reads: the loss of CrossEntropy and the sum of
// SumSquares become 0. Activations, gradients, weights, moments and histograms
// keep their bits.
package null

import (
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// New returns the backend, on host memory with float32 elements. Each call
// moves clock by the seconds that cost gives for it; a wall clock does not
// move, and nothing ever sleeps. A nil cost makes every call free.
func New(clock *device.Clock, cost func(Call) float64) kernel.Backend {
	return NewOf(tensor.F32, clock, cost)
}

// NewOf is New with elements of type d, for what only asks how large things are.
func NewOf(d tensor.DType, clock *device.Clock, cost func(Call) float64) kernel.Backend {
	return backend{kernel.Check{DType: d, Space: tensor.Host}, clock, cost}
}

type backend struct {
	check kernel.Check
	clock *device.Clock
	cost  func(Call) float64
}

// spend moves the clock by the cost of one call.
func (k backend) spend(c Call) {
	if k.cost != nil {
		k.clock.Advance(k.cost(c))
	}
}

func (backend) Name() string          { return "null" }
func (k backend) DType() tensor.DType { return k.check.DType }

func (k backend) EmbeddingForward(_ device.Stream, out, tokens, positions, wte, wpe tensor.Mem, n, c int) {
	k.check.EmbeddingForward(out, tokens, positions, wte, wpe, n, c)
	k.spend(Call{Name: "EmbeddingForward", N: n, C: c})
}

func (k backend) EmbeddingBackward(_ device.Stream, dwte, dwpe, dout, tokens, positions tensor.Mem, n, c int) {
	k.check.EmbeddingBackward(dwte, dwpe, dout, tokens, positions, n, c)
	k.spend(Call{Name: "EmbeddingBackward", N: n, C: c})
}

func (k backend) LayerNormForward(_ device.Stream, out, mean, rstd, inp, weight, bias tensor.Mem, n, c int) {
	k.check.LayerNormForward(out, mean, rstd, inp, weight, bias, n, c)
	k.spend(Call{Name: "LayerNormForward", N: n, C: c})
}

func (k backend) LayerNormBackwardInput(_ device.Stream, dinp, dout, inp, mean, rstd, weight tensor.Mem, n, c int) {
	k.check.LayerNormBackwardInput(dinp, dout, inp, mean, rstd, weight, n, c)
	k.spend(Call{Name: "LayerNormBackwardInput", N: n, C: c})
}

func (k backend) LayerNormBackwardWeight(_ device.Stream, dweight, dbias, dout, inp, mean, rstd tensor.Mem, n, c int) {
	k.check.LayerNormBackwardWeight(dweight, dbias, dout, inp, mean, rstd, n, c)
	k.spend(Call{Name: "LayerNormBackwardWeight", N: n, C: c})
}

func (k backend) MatmulForward(_ device.Stream, out, inp, weight, bias tensor.Mem, n, c, o int) {
	k.check.MatmulForward(out, inp, weight, bias, n, c, o)
	k.spend(Call{"MatmulForward", n, c, o, c * o})
}

func (k backend) MatmulBackwardInput(_ device.Stream, dinp, dout, weight tensor.Mem, n, c, o int) {
	k.check.MatmulBackwardInput(dinp, dout, weight, n, c, o)
	k.spend(Call{"MatmulBackwardInput", n, c, o, c * o})
}

func (k backend) MatmulBackwardWeight(_ device.Stream, dweight, dbias, dout, inp tensor.Mem, n, c, o int) {
	k.check.MatmulBackwardWeight(dweight, dbias, dout, inp, n, c, o)
	k.spend(Call{"MatmulBackwardWeight", n, c, o, c * o})
}

func (k backend) SpMMForward(_ device.Stream, out, inp tensor.Mem, w kernel.CSR, bias tensor.Mem, n int) {
	k.check.SpMMForward(out, inp, w, bias, n)
	k.spend(Call{"SpMMForward", n, w.Cols, w.Rows, w.NNZ})
}

func (k backend) SpMMBackwardInput(_ device.Stream, dinp, dout tensor.Mem, w kernel.CSR, n int) {
	k.check.SpMMBackwardInput(dinp, dout, w, n)
	k.spend(Call{"SpMMBackwardInput", n, w.Cols, w.Rows, w.NNZ})
}

func (k backend) SDDMM(_ device.Stream, dvalues, dbias, dout, inp tensor.Mem, w kernel.CSR, n int) {
	k.check.SDDMM(dvalues, dbias, dout, inp, w, n)
	k.spend(Call{"SDDMM", n, w.Cols, w.Rows, w.NNZ})
}

func (k backend) AttentionForward(_ device.Stream, out, lse, qkv, offsets tensor.Mem, b, longest, n, c, nh int) {
	k.check.AttentionForward(out, lse, qkv, offsets, b, longest, n, c, nh)
	k.spend(Call{Name: "AttentionForward", N: n, C: c, O: n / max(b, 1)})
}

func (k backend) AttentionBackward(_ device.Stream, dqkv, dout, qkv, out, lse, offsets tensor.Mem, b, longest, n, c, nh int) {
	k.check.AttentionBackward(dqkv, dout, qkv, out, lse, offsets, b, longest, n, c, nh)
	k.spend(Call{Name: "AttentionBackward", N: n, C: c, O: n / max(b, 1)})
}

func (k backend) GELUForward(_ device.Stream, out, inp tensor.Mem, n int) {
	k.check.GELUForward(out, inp, n)
	k.spend(Call{Name: "GELUForward", N: n, C: 1})
}

func (k backend) GELUBackward(_ device.Stream, dinp, inp, dout tensor.Mem, n int) {
	k.check.GELUBackward(dinp, inp, dout, n)
	k.spend(Call{Name: "GELUBackward", N: n, C: 1})
}

func (k backend) Add(_ device.Stream, out, a, b tensor.Mem, n int) {
	k.check.Add(out, a, b, n)
	k.spend(Call{Name: "Add", N: n, C: 1})
}

func (k backend) Accumulate(s device.Stream, out, a, b tensor.Mem, n int) { k.Add(s, out, a, b, n) }

func (k backend) SoftmaxMerge(_ device.Stream, out, before, logits, targets tensor.Mem, n, v, first int) {
	k.check.SoftmaxMerge(out, before, logits, targets, n, v, first)
	k.spend(Call{Name: "SoftmaxMerge", N: n, C: v})
}

func (k backend) SoftmaxGradient(_ device.Stream, logits, stats, targets tensor.Mem, scale float64, n, v, first int) {
	k.check.SoftmaxGradient(logits, stats, targets, n, v, first)
	k.spend(Call{Name: "SoftmaxGradient", N: n, C: v})
}

func (k backend) CrossEntropy(_ device.Stream, loss, out, before, logits, targets tensor.Mem, scale float64, n, v, first int) {
	k.check.CrossEntropy(loss, out, before, logits, targets, n, v, first)
	tensor.Of[float64](loss)[0] = 0
	k.spend(Call{Name: "CrossEntropy", N: n, C: v})
}

func (k backend) SumSquares(_ device.Stream, out, x tensor.Mem, n int) {
	k.check.SumSquares(out, x, n)
	tensor.Of[float64](out)[0] = 0
	k.spend(Call{Name: "SumSquares", N: n, C: 1})
}

func (k backend) AdamW(_ device.Stream, w, master, m, v, g tensor.Mem, n int, a kernel.AdamW) {
	k.check.AdamW(w, master, m, v, g, n, a)
	k.spend(Call{Name: "AdamW", N: n, C: 1})
}

func (k backend) Mask(_ device.Stream, x, mask tensor.Mem, n int) {
	k.check.Mask(x, mask, n)
	k.spend(Call{Name: "Mask", N: n, C: 1})
}

func (k backend) MagnitudeHistogram(_ device.Stream, hist, x, mask tensor.Mem, n int, prefix uint32, fixed int) {
	k.check.MagnitudeHistogram(hist, x, mask, n, prefix, fixed)
	k.spend(Call{Name: "MagnitudeHistogram", N: n, C: 1})
}
