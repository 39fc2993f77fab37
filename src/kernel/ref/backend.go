package ref

import (
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// New returns the reference as a backend on host memory with elements of type
// d. It panics unless d is tensor.F32 or tensor.F64.
func New(d tensor.DType) kernel.Backend {
	check := kernel.Check{DType: d, Space: tensor.Host}
	switch d {
	case tensor.F32:
		return backend[float32]{check}
	case tensor.F64:
		return backend[float64]{check}
	}
	panic("ref: element type is not f32 or f64")
}

// backend works at once; the streams that it is given have nothing to wait for.
type backend[F Float] struct{ check kernel.Check }

func (backend[F]) Name() string          { return "ref" }
func (k backend[F]) DType() tensor.DType { return k.check.DType }

func (k backend[F]) EmbeddingForward(_ device.Stream, out, tokens, positions, wte, wpe tensor.Mem, n, c int) {
	k.check.EmbeddingForward(out, tokens, positions, wte, wpe, n, c)
	EmbeddingForward(of[F](out), tensor.Of[int32](tokens), tensor.Of[int32](positions), of[F](wte), of[F](wpe), c)
}

func (k backend[F]) EmbeddingBackward(_ device.Stream, dwte, dwpe, dout, tokens, positions tensor.Mem, n, c int) {
	k.check.EmbeddingBackward(dwte, dwpe, dout, tokens, positions, n, c)
	EmbeddingBackward(of[F](dwte), of[F](dwpe), of[F](dout), tensor.Of[int32](tokens), tensor.Of[int32](positions), c)
}

func (k backend[F]) LayerNormForward(_ device.Stream, out, mean, rstd, inp, weight, bias tensor.Mem, n, c int) {
	k.check.LayerNormForward(out, mean, rstd, inp, weight, bias, n, c)
	LayerNormForward(of[F](out), of[F](mean), of[F](rstd), of[F](inp), of[F](weight), of[F](bias), n, c)
}

func (k backend[F]) LayerNormBackwardInput(_ device.Stream, dinp, dout, inp, mean, rstd, weight tensor.Mem, n, c int) {
	k.check.LayerNormBackwardInput(dinp, dout, inp, mean, rstd, weight, n, c)
	LayerNormBackwardInput(of[F](dinp), of[F](dout), of[F](inp), of[F](mean), of[F](rstd), of[F](weight), n, c)
}

func (k backend[F]) LayerNormBackwardWeight(_ device.Stream, dweight, dbias, dout, inp, mean, rstd tensor.Mem, n, c int) {
	k.check.LayerNormBackwardWeight(dweight, dbias, dout, inp, mean, rstd, n, c)
	LayerNormBackwardWeight(of[F](dweight), of[F](dbias), of[F](dout), of[F](inp), of[F](mean), of[F](rstd), n, c)
}

func (k backend[F]) MatmulForward(_ device.Stream, out, inp, weight, bias tensor.Mem, n, c, o int) {
	k.check.MatmulForward(out, inp, weight, bias, n, c, o)
	MatmulForward(of[F](out), of[F](inp), of[F](weight), of[F](bias), n, c, o)
}

func (k backend[F]) MatmulBackwardInput(_ device.Stream, dinp, dout, weight tensor.Mem, n, c, o int) {
	k.check.MatmulBackwardInput(dinp, dout, weight, n, c, o)
	MatmulBackwardInput(of[F](dinp), of[F](dout), of[F](weight), n, c, o)
}

func (k backend[F]) MatmulBackwardWeight(_ device.Stream, dweight, dbias, dout, inp tensor.Mem, n, c, o int) {
	k.check.MatmulBackwardWeight(dweight, dbias, dout, inp, n, c, o)
	MatmulBackwardWeight(of[F](dweight), of[F](dbias), of[F](dout), of[F](inp), n, c, o)
}

func (k backend[F]) SpMMForward(_ device.Stream, out, inp tensor.Mem, w kernel.CSR, bias tensor.Mem, n int) {
	k.check.SpMMForward(out, inp, w, bias, n)
	SpMMForward(of[F](out), of[F](inp), csr[F](w), of[F](bias), n)
}

func (k backend[F]) SpMMBackwardInput(_ device.Stream, dinp, dout tensor.Mem, w kernel.CSR, n int) {
	k.check.SpMMBackwardInput(dinp, dout, w, n)
	SpMMBackwardInput(of[F](dinp), of[F](dout), csr[F](w), n)
}

func (k backend[F]) SDDMM(_ device.Stream, dvalues, dbias, dout, inp tensor.Mem, w kernel.CSR, n int) {
	k.check.SDDMM(dvalues, dbias, dout, inp, w, n)
	SDDMM(of[F](dvalues), of[F](dbias), of[F](dout), of[F](inp), csr[F](w), n)
}

func (k backend[F]) AttentionForward(_ device.Stream, out, lse, qkv, offsets tensor.Mem, b, longest, n, c, nh int) {
	k.check.AttentionForward(out, lse, qkv, offsets, b, longest, n, c, nh)
	AttentionForward(of[F](out), of[F](lse), of[F](qkv), tensor.Of[int32](offsets), longest, c, nh)
}

func (k backend[F]) AttentionBackward(_ device.Stream, dqkv, dout, qkv, out, lse, offsets tensor.Mem, b, longest, n, c, nh int) {
	k.check.AttentionBackward(dqkv, dout, qkv, out, lse, offsets, b, longest, n, c, nh)
	AttentionBackward(of[F](dqkv), of[F](dout), of[F](qkv), of[F](out), of[F](lse), tensor.Of[int32](offsets), longest, c, nh)
}

func (k backend[F]) GELUForward(_ device.Stream, out, inp tensor.Mem, n int) {
	k.check.GELUForward(out, inp, n)
	GELUForward(of[F](out), of[F](inp))
}

func (k backend[F]) GELUBackward(_ device.Stream, dinp, inp, dout tensor.Mem, n int) {
	k.check.GELUBackward(dinp, inp, dout, n)
	GELUBackward(of[F](dinp), of[F](inp), of[F](dout))
}

func (k backend[F]) Add(_ device.Stream, out, a, b tensor.Mem, n int) {
	k.check.Add(out, a, b, n)
	Add(of[F](out), of[F](a), of[F](b))
}

func (k backend[F]) Accumulate(s device.Stream, out, a, b tensor.Mem, n int) { k.Add(s, out, a, b, n) }

func (k backend[F]) SoftmaxMerge(_ device.Stream, out, before, logits, targets tensor.Mem, n, v, first int) {
	k.check.SoftmaxMerge(out, before, logits, targets, n, v, first)
	SoftmaxMerge(tensor.Of[float64](out), tensor.Of[float64](before), of[F](logits), tensor.Of[int32](targets), n, v, first)
}

func (k backend[F]) SoftmaxGradient(_ device.Stream, logits, stats, targets tensor.Mem, scale float64, n, v, first int) {
	k.check.SoftmaxGradient(logits, stats, targets, n, v, first)
	SoftmaxGradient(of[F](logits), tensor.Of[float64](stats), tensor.Of[int32](targets), scale, n, v, first)
}

func (k backend[F]) CrossEntropy(_ device.Stream, loss, out, before, logits, targets tensor.Mem, scale float64, n, v, first int) {
	k.check.CrossEntropy(loss, out, before, logits, targets, n, v, first)
	tensor.Of[float64](loss)[0] = CrossEntropy(tensor.Of[float64](out), tensor.Of[float64](before), of[F](logits),
		tensor.Of[int32](targets), scale, n, v, first)
}

func (k backend[F]) SumSquares(_ device.Stream, out, x tensor.Mem, n int) {
	k.check.SumSquares(out, x, n)
	tensor.Of[float64](out)[0] = SumSquares(of[F](x))
}

func (k backend[F]) AdamW(_ device.Stream, w, master, m, v, g tensor.Mem, n int, a kernel.AdamW) {
	k.check.AdamW(w, master, m, v, g, n, a)
	AdamW(of[F](w), of[F](m), of[F](v), of[F](g), a)
}

func (k backend[F]) Mask(_ device.Stream, x, mask tensor.Mem, n int) {
	k.check.Mask(x, mask, n)
	Mask(of[F](x), tensor.Of[uint64](mask))
}

func (k backend[F]) MagnitudeHistogram(_ device.Stream, hist, x, mask tensor.Mem, n int, prefix uint32, fixed int) {
	k.check.MagnitudeHistogram(hist, x, mask, n, prefix, fixed)
	MagnitudeHistogram(tensor.Of[int64](hist), of[F](x), tensor.Of[uint64](mask), prefix, fixed)
}

func csr[F Float](w kernel.CSR) CSR[F] {
	return CSR[F]{w.Rows, w.Cols, tensor.Of[int32](w.RowPtr), tensor.Of[int32](w.ColIdx), of[F](w.Values)}
}

func of[F Float](m tensor.Mem) []F { return tensor.Of[F](m) }
