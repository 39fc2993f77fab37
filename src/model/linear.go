package model

import "dynmo/src/tensor"

// linear is y = x·Wᵀ + b with W in any format.
type linear struct{ w, b *Param }

func newLinear(name string, rows, cols, block int, deviation float64) linear {
	return linear{
		w: &Param{Name: name + ".weight", Rows: rows, Cols: cols, role: prunable, deviation: deviation, block: block},
		b: &Param{Name: name + ".bias", Rows: rows, Cols: 1, role: plain, block: block},
	}
}

// forward sets out (n, Rows) from inp (n, Cols).
func (l linear) forward(x *Exec, out, inp tensor.Mem) {
	if l.w.Format == CSR {
		x.Backend.SpMMForward(x.Stream, out, inp, l.w.csr(l.w.W), l.b.W, x.N())
		return
	}
	x.Backend.MatmulForward(x.Stream, out, inp, l.w.W, l.b.W, x.N(), l.w.Cols, l.w.Rows)
}

// forwardAdd is forward, then out += add (n, Rows).
func (l linear) forwardAdd(x *Exec, out, inp, add tensor.Mem) {
	if l.w.Format != CSR {
		x.Backend.MatmulForwardAdd(x.Stream, out, inp, l.w.W, l.b.W, add, x.N(), l.w.Cols, l.w.Rows)
		return
	}
	l.forward(x, out, inp)
	x.Backend.Add(x.Stream, out, out, add, x.N()*l.w.Rows)
}

// forwardGELU is forward into pre, then out = gelu(pre), both (n, Rows).
func (l linear) forwardGELU(x *Exec, out, pre, inp tensor.Mem) {
	if l.w.Format != CSR {
		x.Backend.MatmulForwardGELU(x.Stream, out, pre, inp, l.w.W, l.b.W, x.N(), l.w.Cols, l.w.Rows)
		return
	}
	l.forward(x, pre, inp)
	x.Backend.GELUForward(x.Stream, out, pre, x.N()*l.w.Rows)
}

// backwardGELU sets dpre (n, Cols) from dout (n, Rows), through the GELU of pre
// that made what forward was given.
func (l linear) backwardGELU(x *Exec, dpre, dout, pre tensor.Mem) {
	if l.w.Format != CSR {
		x.Backend.MatmulBackwardGELU(x.Stream, dpre, dout, l.w.W, pre, x.N(), l.w.Cols, l.w.Rows)
		return
	}
	l.backwardInput(x, dpre, dout)
	x.Backend.GELUBackward(x.Stream, dpre, pre, dpre, x.N()*l.w.Cols)
}

// backwardInput sets dinp (n, Cols) from dout (n, Rows).
func (l linear) backwardInput(x *Exec, dinp, dout tensor.Mem) {
	if l.w.Format == CSR {
		x.Backend.SpMMBackwardInput(x.Stream, dinp, dout, l.w.csr(l.w.W), x.N())
		return
	}
	x.Backend.MatmulBackwardInput(x.Stream, dinp, dout, l.w.W, x.N(), l.w.Cols, l.w.Rows)
}

// backwardWeight adds to the gradients of W and b. Masked matrices get a dense
// gradient; Layer.MaskGradients cuts it once per step.
func (l linear) backwardWeight(x *Exec, dout, inp tensor.Mem) {
	if l.w.Format == CSR {
		x.Backend.SDDMM(x.Stream, l.w.G, l.b.G, dout, inp, l.w.csr(l.w.W), x.N())
		return
	}
	x.Backend.MatmulBackwardWeight(x.Stream, l.w.G, l.b.G, dout, inp, x.N(), l.w.Cols, l.w.Rows)
}

// norm is LayerNorm with weight and bias.
type norm struct{ w, b *Param }

func newNorm(name string, c, block int) norm {
	return norm{
		w: &Param{Name: name + ".weight", Rows: c, Cols: 1, role: plain, deviation: -1, block: block},
		b: &Param{Name: name + ".bias", Rows: c, Cols: 1, role: plain, block: block},
	}
}

func (l norm) forward(x *Exec, out, mean, rstd, inp tensor.Mem) {
	x.Backend.LayerNormForward(x.Stream, out, mean, rstd, inp, l.w.W, l.b.W, x.N(), l.w.Rows)
}

// backwardInput adds to dinp.
func (l norm) backwardInput(x *Exec, dinp, dout, inp, mean, rstd tensor.Mem) {
	x.Backend.LayerNormBackwardInput(x.Stream, dinp, dout, inp, mean, rstd, l.w.W, x.N(), l.w.Rows)
}

// backwardInputTo sets dinp to add + what backwardInput adds.
func (l norm) backwardInputTo(x *Exec, dinp, add, dout, inp, mean, rstd tensor.Mem) {
	x.Backend.LayerNormBackwardInputTo(x.Stream, dinp, add, dout, inp, mean, rstd, l.w.W, x.N(), l.w.Rows)
}

func (l norm) backwardWeight(x *Exec, dout, inp, mean, rstd tensor.Mem) {
	x.Backend.LayerNormBackwardWeight(x.Stream, l.w.G, l.b.G, dout, inp, mean, rstd, x.N(), l.w.Rows)
}
