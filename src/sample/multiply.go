package sample

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

const (
	// sliceBytes is how much of a matrix is multiplied with one vector after the
	// other: it stays in a cache, and handing it to a thread costs little beside.
	sliceBytes = 128 << 10
	// manyTokens is from how many on a backend's product is the faster one: it packs the
	// matrix anew, which takes as long as multiplying a few vectors with it.
	manyTokens = 8
)

// multiply sets out (n, o) = inp (n, c) · weight (o, c)ᵀ + bias (o), which may be
// absent.
func (m *Model) multiply(out, inp []float32, w linear, n, c, o int) {
	if m.kernels != nil && n >= manyTokens {
		m.kernels.MatmulForward(nil, tensor.From(out), tensor.From(inp), tensor.From(w.weight), tensor.From(w.bias), n, c, o)
		return
	}
	m.team.share(o, max(1, sliceBytes/(4*c)), func(lo, hi int) {
		rows := blas32.General{Rows: hi - lo, Cols: c, Stride: c, Data: w.weight[lo*c : hi*c]}
		for i := range n {
			part := out[i*o+lo : i*o+hi]
			beta := float32(0)
			if w.bias != nil {
				copy(part, w.bias[lo:hi])
				beta = 1
			}
			blas32.Gemv(blas.NoTrans, 1, rows, vector(inp[i*c:][:c]), beta, vector(part))
		}
	})
}

// sliceGELU is how many elements of an activation a thread takes at a time: some
// microseconds of work.
const sliceGELU = 256

// gelu sets out to the GELU of inp.
func (m *Model) gelu(out, inp []float32) {
	if m.kernels != nil {
		m.kernels.GELUForward(nil, tensor.From(out), tensor.From(inp), len(inp))
		return
	}
	m.team.share(len(inp), sliceGELU, func(lo, hi int) { ref.GELUForward(out[lo:hi], inp[lo:hi]) })
}

// swiglu sets out (n, c) to silu(gate)·up of the rows of gateup (n, 2c).
func (m *Model) swiglu(out, gateup []float32, n, c int) {
	if m.kernels != nil {
		m.kernels.SwiGLUForward(nil, tensor.From(out), tensor.From(gateup), n, c)
		return
	}
	m.team.share(n, max(1, sliceGELU/c), func(lo, hi int) {
		ref.SwiGLUForward(out[lo*c:hi*c], gateup[2*lo*c:2*hi*c], hi-lo, c)
	})
}

func vector(x []float32) blas32.Vector { return blas32.Vector{N: len(x), Inc: 1, Data: x} }
