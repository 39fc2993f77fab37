package model

import (
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// Format is how a matrix is stored.
type Format uint8

const (
	Dense  Format = iota // Rows·Cols values
	Masked               // Rows·Cols values, zero where the bit mask is 0
	CSR                  // the kept values of compressed rows
)

// String returns "dense", "masked" or "csr".
func (f Format) String() string { return [...]string{"dense", "masked", "csr"}[f] }

// role is what the optimizer and pruning do with a parameter. Parameters lie
// in their layer's slabs in the order of roles.
type role uint8

const (
	prunable role = iota // a block's matrix: pruned, decayed
	decayed              // an embedding: decayed
	plain                // a norm or a bias: neither
	borrowed             // the head's copy of tied weights: updated by its owner
)

// Param is one parameter of a layer: (Rows, Cols), or (Rows) with Cols 1. The
// spans point into the layer's slabs; W, G, M and V hold Stored() elements.
type Param struct {
	Name       string
	Rows, Cols int
	First, Of  int // a slice holds rows [First, First+Rows) of Of; 0 of anything else
	Format     Format
	NNZ        int // kept entries; Rows·Cols if Dense

	W, G, M, V     tensor.Mem // weight, gradient, first and second moment (no moments if borrowed)
	Master         tensor.Mem // weight before it was rounded to W's type; absent if it is not, or borrowed
	Mask           tensor.Mem // Masked: U64, bit i%64 of word i/64
	RowPtr, ColIdx tensor.Mem // CSR

	role      role
	deviation float64 // of the initial normal distribution; negative: constant 1; 0: constant 0
	block     int     // keys the random numbers, with Name; -1 outside the blocks
}

// Wide returns the weights in the wide type: the master's if there is one.
func (p *Param) Wide() tensor.Mem {
	if p.Master.IsZero() {
		return p.W
	}
	return p.Master
}

// Stored returns how many values W holds.
func (p *Param) Stored() int {
	if p.Format == CSR {
		return p.NNZ
	}
	return p.Rows * p.Cols
}

// Whole returns the rows of the matrix that this is a slice of, or is.
func (p *Param) Whole() int { return max(p.Rows, p.Of) }

// Prunable reports whether global pruning considers the parameter.
func (p *Param) Prunable() bool { return p.role == prunable }

// csr returns the matrix with some values (weights or gradients) at its kept entries.
func (p *Param) csr(values tensor.Mem) kernel.CSR {
	return kernel.CSR{Rows: p.Rows, Cols: p.Cols, NNZ: p.NNZ, RowPtr: p.RowPtr, ColIdx: p.ColIdx, Values: values}
}

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

func (l norm) backwardWeight(x *Exec, dout, inp, mean, rstd tensor.Mem) {
	x.Backend.LayerNormBackwardWeight(x.Stream, l.w.G, l.b.G, dout, inp, mean, rstd, x.N(), l.w.Rows)
}
