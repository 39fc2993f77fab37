package model

import (
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// linear is y = x·Wᵀ + b with W in any format, or its rows from a first one on.
type linear struct {
	w, b  *Param
	first int
}

func newLinear(at place, name string, rows, cols int, deviation float64) linear {
	return linear{
		w: at.param(name+".weight", rows, cols, prunable, deviation),
		b: at.param(name+".bias", rows, 1, plain, 0),
	}
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
		Rows: l.rows(), Cols: l.w.Cols, NNZ: l.w.NNZ, RowPtr: l.w.RowPtr.Span(first, l.w.RowPtr.Bytes-first), ColIdx: l.w.ColIdx, Values: values,
	}
}

// forward sets out (n, rows) from inp (n, Cols).
func (l linear) forward(x *Exec, n int, out, inp tensor.Mem) {
	if l.w.Format == CSR {
		x.Backend.SpMMForward(x.Stream, out, inp, l.csr(l.w.W), l.of(l.b.W), n)
		return
	}
	x.Backend.MatmulForward(x.Stream, out, inp, l.of(l.w.W), l.of(l.b.W), n, l.w.Cols, l.rows())
}

// forwardAdd is forward, then out += add (n, rows).
func (l linear) forwardAdd(x *Exec, n int, out, inp, add tensor.Mem) {
	if l.w.Format != CSR {
		x.Backend.MatmulForwardAdd(x.Stream, out, inp, l.of(l.w.W), l.of(l.b.W), add, n, l.w.Cols, l.rows())
		return
	}
	l.forward(x, n, out, inp)
	x.Backend.Add(x.Stream, out, out, add, n*l.rows())
}

// forwardGELU is forward into pre, then out = gelu(pre), both (n, rows).
func (l linear) forwardGELU(x *Exec, n int, out, pre, inp tensor.Mem) {
	if l.w.Format != CSR {
		x.Backend.MatmulForwardGELU(x.Stream, out, pre, inp, l.of(l.w.W), l.of(l.b.W), n, l.w.Cols, l.rows())
		return
	}
	l.forward(x, n, pre, inp)
	x.Backend.GELUForward(x.Stream, out, pre, n*l.rows())
}

// backwardGELU sets dpre (n, Cols) from dout (n, rows), through the GELU of pre
// that made what forward was given.
func (l linear) backwardGELU(x *Exec, n int, dpre, dout, pre tensor.Mem) {
	if l.w.Format != CSR {
		x.Backend.MatmulBackwardGELU(x.Stream, dpre, dout, l.of(l.w.W), pre, n, l.w.Cols, l.rows())
		return
	}
	l.backwardInput(x, n, dpre, dout)
	x.Backend.GELUBackward(x.Stream, dpre, pre, dpre, n*l.w.Cols)
}

// backwardInput sets dinp (n, Cols) from dout (n, rows).
func (l linear) backwardInput(x *Exec, n int, dinp, dout tensor.Mem) {
	if l.w.Format == CSR {
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
	if l.w.Format == CSR {
		x.Backend.SDDMM(x.Stream, l.w.G, l.of(l.b.G), dout, inp, l.csr(l.w.W), n)
		return
	}
	x.Backend.MatmulBackwardWeight(x.Stream, l.of(l.w.G), l.of(l.b.G), dout, inp, n, l.w.Cols, l.rows())
}

// norm is LayerNorm with weight and bias.
type norm struct{ w, b *Param }

func newNorm(at place, name string, c int) norm {
	return norm{
		w: at.param(name+".weight", c, 1, plain, -1),
		b: at.param(name+".bias", c, 1, plain, 0),
	}
}

func (l norm) forward(x *Exec, n int, out, mean, rstd, inp tensor.Mem) {
	x.Backend.LayerNormForward(x.Stream, out, mean, rstd, inp, l.w.W, l.b.W, n, l.w.Rows)
}

// backwardInput adds to dinp.
func (l norm) backwardInput(x *Exec, n int, dinp, dout, inp, mean, rstd tensor.Mem) {
	x.Backend.LayerNormBackwardInput(x.Stream, dinp, dout, inp, mean, rstd, l.w.W, n, l.w.Rows)
}

// backwardInputTo sets dinp, unless it is absent, to add + what backwardInput adds.
func (l norm) backwardInputTo(x *Exec, n int, dinp, add, dout, inp, mean, rstd tensor.Mem) {
	if dinp.IsZero() {
		return
	}
	x.Backend.LayerNormBackwardInputTo(x.Stream, dinp, add, dout, inp, mean, rstd, l.w.W, n, l.w.Rows)
}

func (l norm) backwardWeight(x *Exec, n int, dout, inp, mean, rstd tensor.Mem) {
	if l.w.Frozen {
		return
	}
	x.Backend.LayerNormBackwardWeight(x.Stream, l.w.G, l.b.G, dout, inp, mean, rstd, n, l.w.Rows)
}
