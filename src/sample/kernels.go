package sample

import (
	"sync"
	"sync/atomic"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
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

// kernels is a backend for few tokens. It multiplies matrices with vectors on all threads. All other
// work is that of another backend.
type kernels struct {
	kernel.Calls
	other kernel.Backend
	team  team
	many  int // least number of tokens whose products the other backend makes; 0: it makes none
}

// newKernels returns kernels over k, or over the reference if k is nil.
func newKernels(k kernel.Backend, threads team) *kernels {
	b := &kernels{other: k, team: threads, many: manyTokens}
	if k == nil {
		b.other, b.many = ref.New(tensor.F32), 0
	}
	b.Calls = kernel.NewCalls(tensor.F32, tensor.Host, true, b.do)
	return b
}

func (k *kernels) Name() string     { return k.other.Name() }
func (k *kernels) Identity() string { return k.other.Identity() }

// do makes a call. It leaves out calls of no tokens.
func (k *kernels) do(s device.Stream, call *kernel.Call) {
	x := func(i int) []float32 { return tensor.Of[float32](call.Mem[i]) }
	n := call.N
	switch {
	case n == 0:
	case k.many > 0 && n >= k.many:
		k.other.Run(s, *call)
	case call.Op == kernel.MatmulForward:
		k.multiply(x(0), x(1), x(2), x(3), n, call.C, call.O)
	case call.Op == kernel.MatmulForwardAdd:
		k.multiply(x(0), x(1), x(2), x(3), n, call.C, call.O)
		k.other.Add(s, call.Mem[0], call.Mem[0], call.Mem[4], n*call.O)
	case call.Op == kernel.MatmulForwardGELU:
		k.multiply(x(1), x(2), x(3), x(4), n, call.C, call.O)
		k.other.GELUForward(s, call.Mem[0], call.Mem[1], n*call.O)
	case call.Op == kernel.GroupedForward:
		ends := tensor.Of[int32](call.Mem[3])
		for e := range call.E {
			lo, hi, at := int(ends[e]), int(ends[e+1]), e*(call.O*call.C+call.Gap)
			k.multiply(x(0)[lo*call.O:], x(1)[lo*call.C:], x(2)[at:][:call.O*call.C], nil, hi-lo, call.C, call.O)
		}
	default:
		k.other.Run(s, *call)
	}
}

// multiply sets out (n, o) = inp (n, c) · weight (o, c)ᵀ + bias (o), which may be absent.
func (k *kernels) multiply(out, inp, weight, bias []float32, n, c, o int) {
	k.team.share(o, max(1, sliceBytes/(4*c)), func(lo, hi int) {
		rows := blas32.General{Rows: hi - lo, Cols: c, Stride: c, Data: weight[lo*c : hi*c]}
		for i := range n {
			part := out[i*o+lo : i*o+hi]
			beta := float32(0)
			if bias != nil {
				copy(part, bias[lo:hi])
				beta = 1
			}
			blas32.Gemv(blas.NoTrans, 1, rows, vector(inp[i*c:][:c]), beta, vector(part))
		}
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
