//go:build blas && cgo

package cpu

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"dynmo/src/kernel"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// The shapes are those of a block of GPT-2 124M at 4 sequences of 64 tokens,
// and its head.
const (
	batch, sequence, channels, heads, vocabulary = 4, 64, 768, 12, 50257

	tokens = batch * sequence
	hidden = 4 * channels
)

// threads is how many the measured backend has: go test -bench . -args -threads 2.
var threads = flag.Int("threads", 1, "threads of benchmarks")

func random32(seed uint64, n int) tensor.Mem { return tensor.From(normal(seed, n)) }
func empty(n int) tensor.Mem                 { return tensor.From(make([]float32, n)) }

// even returns the offsets of b sequences of t tokens.
func even(b, t int) tensor.Mem {
	offsets := make([]int32, b+1)
	for i := range offsets {
		offsets[i] = int32(i * t)
	}
	return tensor.From(offsets)
}

// run measures call on every path. flops is its operations: 0 for calls that
// memory bounds, whose rate is in bytes.
func run(b *testing.B, name string, flops, bytes int64, call func(k *backend)) {
	for _, path := range availablePaths() {
		b.Run(name+"/"+path, func(b *testing.B) {
			k := open(b, path, *threads)
			b.SetBytes(bytes)
			call(k) // memory is there before it is measured
			for b.Loop() {
				call(k)
			}
			if flops > 0 {
				b.ReportMetric(float64(flops)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			}
		})
	}
}

// BenchmarkMatmul is the rate of sgemm that the others stand beside.
func BenchmarkMatmul(b *testing.B) {
	const n, c, o = tokens, channels, hidden
	const flops, bytes = 2 * n * c * o, 4 * (n*c + n*o + c*o)
	inp, weight, dout, bias := random32(1, n*c), random32(2, c*o), random32(3, n*o), random32(4, o)
	out, dinp, dweight := empty(n*o), empty(n*c), empty(c*o)
	run(b, "forward", flops, bytes, func(k *backend) { k.MatmulForward(nil, out, inp, weight, bias, n, c, o) })
	run(b, "backward_input", flops, bytes, func(k *backend) { k.MatmulBackwardInput(nil, dinp, dout, weight, n, c, o) })
	run(b, "backward_weight", flops, bytes, func(k *backend) {
		k.MatmulBackwardWeight(nil, dweight, bias, dout, inp, n, c, o)
	})
}

// BenchmarkSparse is at a block's shape and at dynmo bench spmm's.
func BenchmarkSparse(b *testing.B) {
	for _, shape := range []struct{ c, o, percent int }{{channels, hidden, 90}, {4096, 4096, 65}, {4096, 4096, 90}} {
		const n = tokens
		c, o := shape.c, shape.o
		r := random.Keyed(uint64(shape.percent))
		rows, columns := []int32{0}, []int32(nil)
		for range o {
			for j := range c {
				if r.IntN(100) >= shape.percent {
					columns = append(columns, int32(j))
				}
			}
			rows = append(rows, int32(len(columns)))
		}
		nnz := len(columns)
		w := kernel.CSR{Rows: o, Cols: c, NNZ: nnz, RowPtr: tensor.From(rows), ColIdx: tensor.From(columns), Values: random32(1, nnz)}
		flops, bytes := int64(2*n*nnz), int64(4*(n*c+n*o)+8*nnz)
		inp, dout, out, dinp, dvalues := random32(1, n*c), random32(2, n*o), empty(n*o), empty(n*c), empty(nnz)
		none, of := tensor.Mem{}, fmt.Sprintf("_%dx%d_%d", o, c, shape.percent)
		run(b, "forward"+of, flops, bytes, func(k *backend) { k.SpMMForward(nil, out, inp, w, none, n) })
		run(b, "backward_input"+of, flops, bytes, func(k *backend) { k.SpMMBackwardInput(nil, dinp, dout, w, n) })
		run(b, "sddmm"+of, flops, bytes, func(k *backend) { k.SDDMM(nil, dvalues, none, dout, inp, w, n) })
	}
}

// BenchmarkAttention counts only the scores below the diagonal: two products of
// the scores' size forward, five backward.
func BenchmarkAttention(b *testing.B) {
	for _, t := range []int{sequence, 1024} {
		const c, nh = channels, heads
		n := tokens
		if t > n {
			n = t
		}
		batch := n / t
		offsets := even(batch, t)
		product := int64(n) * int64(t+1) * c
		qkv, dout := random32(1, 3*n*c), random32(2, n*c)
		out, lse, dqkv := empty(n*c), empty(n*nh), empty(3*n*c)
		run(b, fmt.Sprintf("forward_%d", t), 2*product, int64(16*n*c), func(k *backend) {
			k.AttentionForward(nil, out, lse, qkv, offsets, batch, t, n, c, nh, nh)
		})
		run(b, fmt.Sprintf("backward_%d", t), 5*product, int64(32*n*c), func(k *backend) {
			k.AttentionBackward(nil, dqkv, dout, qkv, out, lse, offsets, batch, t, n, c, nh, nh)
		})
	}
}

// BenchmarkSparseAttention is BenchmarkAttention's forward and backward pass at a sequence
// of 1024, dense and in buckets with the hash, in turn: x is how many times faster the
// latter is.
func BenchmarkSparseAttention(b *testing.B) {
	const t, c, nh, buckets = 1024, channels, heads, 16
	offsets, qkv, dout := even(1, t), random32(1, 3*t*c), random32(2, t*c)
	out, lse, dqkv := empty(t*c), empty(t*nh), empty(3*t*c)
	h := kernel.Buckets{Count: buckets, Order: tensor.From(make([]int32, 2*nh*t)), Starts: tensor.From(make([]int32, nh*2*(buckets+1)))}
	pairs := make([]float64, 2)
	dense := func(k *backend) {
		k.AttentionForward(nil, out, lse, qkv, offsets, 1, t, t, c, nh, nh)
		k.AttentionBackward(nil, dqkv, dout, qkv, out, lse, offsets, 1, t, t, c, nh, nh)
	}
	sparse := func(k *backend) {
		k.AttentionHash(nil, h, tensor.From(pairs), qkv, offsets, 1, 1, t, t, c, nh)
		k.SparseAttentionForward(nil, out, lse, qkv, offsets, h, 1, t, t, c, nh)
		k.SparseAttentionBackward(nil, dqkv, dout, qkv, out, lse, offsets, h, 1, t, t, c, nh)
	}
	for _, path := range availablePaths() {
		b.Run(path, func(b *testing.B) {
			k, seconds := open(b, path, *threads), [2]float64{}
			dense(k) // memory is there before it is measured
			sparse(k)
			for b.Loop() {
				for i, call := range []func(*backend){dense, sparse} {
					begin := time.Now()
					call(k)
					seconds[i] += time.Since(begin).Seconds()
				}
			}
			b.ReportMetric(seconds[0]/float64(b.N)*1e3, "dense-ms")
			b.ReportMetric(seconds[1]/float64(b.N)*1e3, "sparse-ms")
			b.ReportMetric(seconds[0]/seconds[1], "x")
			b.ReportMetric(pairs[0]/pairs[1], "density")
		})
	}
}

func BenchmarkRows(b *testing.B) {
	const n, c = tokens, channels
	x, dy, w, bias, dx := random32(1, n*c), random32(2, n*c), random32(3, c), random32(4, c), empty(n*c)
	mean, rstd := empty(n), empty(n)
	run(b, "layernorm_forward", 0, 8*n*c, func(k *backend) { k.NormForward(nil, dx, mean, rstd, x, w, bias, n, c, 1e-5) })
	run(b, "layernorm_backward_input", 0, 16*n*c, func(k *backend) {
		k.NormBackwardInput(nil, dx, dy, x, mean, rstd, w, n, c)
	})
	run(b, "layernorm_backward_weight", 0, 8*n*c, func(k *backend) {
		k.NormBackwardWeight(nil, w, bias, dy, x, mean, rstd, n, c)
	})
	run(b, "rmsnorm_forward", 0, 8*n*c, func(k *backend) {
		k.NormForward(nil, dx, tensor.Mem{}, rstd, x, w, tensor.Mem{}, n, c, 1e-5)
	})
	run(b, "rmsnorm_backward_input", 0, 16*n*c, func(k *backend) {
		k.NormBackwardInput(nil, dx, dy, x, tensor.Mem{}, rstd, w, n, c)
	})
	run(b, "rmsnorm_backward_weight", 0, 8*n*c, func(k *backend) {
		k.NormBackwardWeight(nil, w, tensor.Mem{}, dy, x, tensor.Mem{}, rstd, n, c)
	})
	logits, targets, loss := random32(5, n*vocabulary), tensor.From(make([]int32, n)), tensor.From(make([]float64, 1))
	stats := tensor.From(make([]float64, 3*n))
	run(b, "crossentropy", 0, 16*n*vocabulary, func(k *backend) {
		k.CrossEntropy(nil, loss, stats, tensor.Mem{}, logits, targets, 1, n, vocabulary, 0)
	})
}
