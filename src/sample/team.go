package sample

import (
	"sync"
	"sync/atomic"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
)

// team is how many threads share the work of a call.
type team int

// share calls do with ranges of [0, n), grain of them at most, on all threads. A
// thread that is free takes the next range, so that one that was disturbed holds
// up no other.
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

// sliceBytes is how much of a matrix is multiplied with one vector after the
// other: it stays in a cache, and handing it to a thread costs little beside.
const sliceBytes = 128 << 10

// multiply sets out (n, o) = inp (n, c) · weight (o, c)ᵀ + bias (o), which may be
// absent. after, if it is not nil, is called with every part of a row of out.
func (t team) multiply(out, inp []float32, w linear, n, c, o int, after func(part []float32)) {
	t.share(o, max(1, sliceBytes/(4*c)), func(lo, hi int) {
		rows := blas32.General{Rows: hi - lo, Cols: c, Stride: c, Data: w.weight[lo*c : hi*c]}
		for i := range n {
			part := out[i*o+lo : i*o+hi]
			beta := float32(0)
			if w.bias != nil {
				copy(part, w.bias[lo:hi])
				beta = 1
			}
			blas32.Gemv(blas.NoTrans, 1, rows, vector(inp[i*c:][:c]), beta, vector(part))
			if after != nil {
				after(part)
			}
		}
	})
}

func vector(x []float32) blas32.Vector { return blas32.Vector{N: len(x), Inc: 1, Data: x} }
