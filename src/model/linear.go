package model

import (
	"slices"

	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// linear is y = x·Wᵀ + b with W in any format, or its rows from a first one on. b may be
// nil.
type linear struct {
	w, b  *Param
	first int
}

// newLinear returns a matrix of a block, with a bias where the model has them.
func (c Config) newLinear(at place, name string, rows, cols int, deviation float64) linear {
	l := linear{w: at.param(name+".weight", rows, cols, prunable, deviation)}
	if c.biased() {
		l.b = at.param(name+".bias", rows, 1, plain, 0)
	}
	return l
}

func (l linear) params() []*Param { return present(l.w, l.b) }

// present returns the parameters that are not nil.
func present(list ...*Param) []*Param {
	return slices.DeleteFunc(list, func(p *Param) bool { return p == nil })
}

// bias returns the biases of the rows, absent if there are none, and their gradients.
func (l linear) bias() (values, gradients tensor.Mem) {
	if l.b == nil {
		return values, gradients
	}
	return l.of(l.b.W), l.of(l.b.G)
}

// rows returns what each token leaves with; 0 of no linear.
func (l linear) rows() int {
	if l.w == nil {
		return 0
	}
	return l.w.Rows - l.first
}

// from returns the linear of the rows from a first one on.
func (l linear) from(first int) linear { return linear{l.w, l.b, first} }

// of returns the rows of weights, biases or gradients of all.
func (l linear) of(all tensor.Mem) tensor.Mem {
	if l.first == 0 {
		return all
	}
	return rowsOf(all, l.w.Rows, l.first, l.rows())
}

// csr returns the matrix with some values (weights or gradients) at its kept entries.
func (l linear) csr(values tensor.Mem) kernel.CSR {
	first := int64(l.first) * tensor.I32.Size()
	return kernel.CSR{
		Rows: l.rows(), Cols: l.w.Cols, NNZ: l.w.NNZ, Blocks: l.w.Format == BlockCSR,
		RowPtr: l.w.RowPtr.Span(first, l.w.RowPtr.Bytes-first), ColIdx: l.w.ColIdx, Values: values,
	}
}

// forward sets out (n, rows) from inp (n, Cols).
func (l linear) forward(x *Exec, n int, out, inp tensor.Mem) {
	bias, _ := l.bias()
	if l.w.Format.Sparse() {
		x.Backend.SpMMForward(x.Stream, out, inp, l.csr(l.w.W), bias, n)
		return
	}
	x.Backend.MatmulForward(x.Stream, out, inp, l.of(l.w.W), bias, n, l.w.Cols, l.rows())
}

// forwardAdd is forward, then out += add (n, rows).
func (l linear) forwardAdd(x *Exec, n int, out, inp, add tensor.Mem) {
	if !l.w.Format.Sparse() {
		bias, _ := l.bias()
		x.Backend.MatmulForwardAdd(x.Stream, out, inp, l.of(l.w.W), bias, add, n, l.w.Cols, l.rows())
		return
	}
	l.forward(x, n, out, inp)
	x.Backend.Add(x.Stream, out, out, add, n*l.rows())
}

// forwardGELU is forward into pre, then out = gelu(pre), both (n, rows).
func (l linear) forwardGELU(x *Exec, n int, out, pre, inp tensor.Mem) {
	if !l.w.Format.Sparse() {
		bias, _ := l.bias()
		x.Backend.MatmulForwardGELU(x.Stream, out, pre, inp, l.of(l.w.W), bias, n, l.w.Cols, l.rows())
		return
	}
	l.forward(x, n, pre, inp)
	x.Backend.GELUForward(x.Stream, out, pre, n*l.rows())
}

// backwardGELU sets dpre (n, Cols) from dout (n, rows), through the GELU of pre
// that made what forward was given.
func (l linear) backwardGELU(x *Exec, n int, dpre, dout, pre tensor.Mem) {
	if !l.w.Format.Sparse() {
		x.Backend.MatmulBackwardGELU(x.Stream, dpre, dout, l.of(l.w.W), pre, n, l.w.Cols, l.rows())
		return
	}
	l.backwardInput(x, n, dpre, dout)
	x.Backend.GELUBackward(x.Stream, dpre, pre, dpre, n*l.w.Cols)
}

// backwardInput sets dinp (n, Cols) from dout (n, rows).
func (l linear) backwardInput(x *Exec, n int, dinp, dout tensor.Mem) {
	if l.w.Format.Sparse() {
		x.Backend.SpMMBackwardInput(x.Stream, dinp, dout, l.csr(l.w.W), n)
		return
	}
	x.Backend.MatmulBackwardInput(x.Stream, dinp, dout, l.of(l.w.W), n, l.w.Cols, l.rows())
}

// backwardWeight adds to the gradients of W and b. Masked matrices get a dense
// gradient; Layer.MaskGradients cuts it once per step. A bias freezes with its
// matrix.
func (l linear) backwardWeight(x *Exec, n int, dout, inp tensor.Mem) {
	if l.w.Frozen {
		return
	}
	_, dbias := l.bias()
	if l.w.Format.Sparse() {
		x.Backend.SDDMM(x.Stream, l.w.G, dbias, dout, inp, l.csr(l.w.W), n)
		return
	}
	x.Backend.MatmulBackwardWeight(x.Stream, l.of(l.w.G), dbias, dout, inp, n, l.w.Cols, l.rows())
}
