package sample

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"dynmo/src/kernel/ref"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

const (
	// sliceBytes is the part of a matrix that a thread takes at a time. It stays in a cache for all
	// vectors, and is large beside the cost of handing it out.
	sliceBytes = 128 << 10
	// manyTokens is the least number of tokens for which a backend's product is faster. The backend
	// packs the matrix first, which takes as long as multiplying a few vectors.
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

// sliceGELU is how many elements of an activation a thread takes at a time: some microseconds of
// work.
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

// team is the number of threads that share the work of a call.
type team int

// share calls do with ranges of [0, n), of at most grain each, on all threads. A free thread takes
// the next range, so a disturbed thread does not delay the others.
func (t team) share(n, grain int, do func(lo, hi int)) {
	var next atomic.Int64
	take := func() {
		for {
			lo := int(next.Add(int64(grain))) - grain
			if lo >= n {
				return
			}
			do(lo, min(lo+grain, n))
		}
	}
	var group sync.WaitGroup
	for range min(int(t), (n+grain-1)/grain) - 1 {
		group.Go(take)
	}
	take()
	group.Wait()
}

// room returns memory for each of weights, in one span of huge pages if the system has them. A
// token reads every weight, and with small pages it would also wait for their addresses.
func room(weights []model.Weight) [][]float32 {
	total := int64(0)
	for _, w := range weights {
		total += w.Bytes() / 4
	}
	memory := make([]float32, total)
	_ = unix.Madvise(tensor.Of[byte](tensor.From(memory)), unix.MADV_HUGEPAGE) // an error is ignored: a kernel without huge pages works too
	parts := make([][]float32, len(weights))
	for i, w := range weights {
		n := w.Bytes() / 4
		parts[i], memory = memory[:n:n], memory[n:]
	}
	return parts
}
