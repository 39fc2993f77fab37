package model

import (
	"slices"

	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// Linear is y = x·Wᵀ + b with W (Rows, Cols) in any format. b may be nil. Inside this package a
// Linear may also compute only the last rows of y; Rows() counts these.
type Linear struct {
	W, B  *Param
	first int
}

// NewLinear returns a prunable matrix of a block (rows, cols), with a bias if the model's norms are
// LayerNorm. deviation is the standard deviation of the initial weights.
func (c Config) NewLinear(at Place, name string, rows, cols int, deviation float64) Linear {
	l := Linear{W: at.Param(name+".weight", rows, cols, rolePrunable, deviation)}
	if c.biased() {
		l.B = at.Param(name+".bias", rows, 1, RolePlain, 0)
	}
	return l
}

func (l Linear) Params() []*Param { return present(l.W, l.B) }

// present returns the parameters that are not nil.
func present(list ...*Param) []*Param {
	return slices.DeleteFunc(list, func(p *Param) bool { return p == nil })
}

// bias returns the biases of the rows, absent if there are none, and their gradients.
func (l Linear) bias() (values, gradients tensor.Mem) {
	if l.B == nil {
		return values, gradients
	}
	return l.of(l.B.W), l.of(l.B.G)
}

// Rows returns the number of elements of y per token; 0 of the zero Linear.
func (l Linear) Rows() int {
	if l.W == nil {
		return 0
	}
	return l.W.Rows - l.first
}

// from returns the linear of the rows from a first one on.
func (l Linear) from(first int) Linear { return Linear{l.W, l.B, first} }

// of returns the rows of weights, biases or gradients of all.
func (l Linear) of(all tensor.Mem) tensor.Mem {
	if l.first == 0 {
		return all
	}
	return RowsOf(all, l.W.Rows, l.first, l.Rows())
}

// csr returns the matrix with some values (weights or gradients) at its kept entries.
func (l Linear) csr(values tensor.Mem) kernel.CSR {
	first := int64(l.first) * tensor.I32.Size()
	return kernel.CSR{
		Rows: l.Rows(), Cols: l.W.Cols, NNZ: l.W.NNZ, Blocks: l.W.Format == BlockCSR,
		RowPtr: l.W.RowPtr.Span(first, l.W.RowPtr.Bytes-first), ColIdx: l.W.ColIdx, Values: values,
	}
}

// Forward sets out (n, Rows()) from inp (n, Cols), of n tokens.
func (l Linear) Forward(x *Exec, n int, out, inp tensor.Mem) {
	bias, _ := l.bias()
	if l.W.Format.Sparse() {
		x.Backend.SpMMForward(x.Stream, out, inp, l.csr(l.W.W), bias, n)
		return
	}
	x.Backend.MatmulForward(x.Stream, out, inp, l.of(l.W.W), bias, n, l.W.Cols, l.Rows())
}

// ForwardAdd is Forward, then out += add (n, Rows()).
func (l Linear) ForwardAdd(x *Exec, n int, out, inp, add tensor.Mem) {
	if !l.W.Format.Sparse() {
		bias, _ := l.bias()
		x.Backend.MatmulForwardAdd(x.Stream, out, inp, l.of(l.W.W), bias, add, n, l.W.Cols, l.Rows())
		return
	}
	l.Forward(x, n, out, inp)
	x.Backend.Add(x.Stream, out, out, add, n*l.Rows())
}

// ForwardGELU sets pre as Forward sets its out, then out = gelu(pre), both (n, Rows()).
func (l Linear) ForwardGELU(x *Exec, n int, out, pre, inp tensor.Mem) {
	if !l.W.Format.Sparse() {
		bias, _ := l.bias()
		x.Backend.MatmulForwardGELU(x.Stream, out, pre, inp, l.of(l.W.W), bias, n, l.W.Cols, l.Rows())
		return
	}
	l.Forward(x, n, pre, inp)
	x.Backend.GELUForward(x.Stream, out, pre, n*l.Rows())
}

// BackwardGELU is the backward of y = gelu(pre)·Wᵀ + b. It sets dpre (n, Cols), the gradient of pre
// (n, Cols), from dout (n, Rows()), the gradient of y.
func (l Linear) BackwardGELU(x *Exec, n int, dpre, dout, pre tensor.Mem) {
	if !l.W.Format.Sparse() {
		x.Backend.MatmulBackwardGELU(x.Stream, dpre, dout, l.of(l.W.W), pre, n, l.W.Cols, l.Rows())
		return
	}
	l.BackwardInput(x, n, dpre, dout)
	x.Backend.GELUBackward(x.Stream, dpre, pre, dpre, n*l.W.Cols)
}

// BackwardInput sets dinp (n, Cols) from dout (n, Rows()).
func (l Linear) BackwardInput(x *Exec, n int, dinp, dout tensor.Mem) {
	if l.W.Format.Sparse() {
		x.Backend.SpMMBackwardInput(x.Stream, dinp, dout, l.csr(l.W.W), n)
		return
	}
	x.Backend.MatmulBackwardInput(x.Stream, dinp, dout, l.of(l.W.W), n, l.W.Cols, l.Rows())
}

// BackwardWeight adds to the gradients of W and b. Masked matrices get a dense
// gradient; Layer.MaskGradients cuts it once per step. A bias freezes with its
// matrix.
func (l Linear) BackwardWeight(x *Exec, n int, dout, inp tensor.Mem) {
	if l.W.Frozen {
		return
	}
	_, dbias := l.bias()
	if l.W.Format.Sparse() {
		x.Backend.SDDMM(x.Stream, l.W.G, dbias, dout, inp, l.csr(l.W.W), n)
		return
	}
	x.Backend.MatmulBackwardWeight(x.Stream, l.of(l.W.G), dbias, dout, inp, n, l.W.Cols, l.Rows())
}
