package nodebench

import (
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/model"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// buckets and bucketTokens are what the figure to reach is meant for.
const buckets, bucketTokens = 16, 1024

// bucketed measures attention within hash buckets, hashing and sorting counted, beside
// dense attention, forward and backward, of one sequence of normal numbers:
//
//	dynamism/attention_speedup = dense seconds / bucketed seconds
//
// It is right if its results are the reference's.
func (b *bench) bucketed(c model.Config, rounds int) error {
	const n = bucketTokens
	heads, draw := c.Heads, random.Keyed(3).NormFloat64
	qkv, dout := b.matrix(n*3*c.Hidden, draw), b.matrix(n*c.Hidden, draw)
	out, lse, dqkv := b.matrix(n*c.Hidden, nil), b.matrix(n*heads, nil), b.matrix(n*3*c.Hidden, nil)
	offsets, pairs := upload(b, []int32{0, n}), upload(b, make([]float64, 2))
	h := kernel.Buckets{
		Count: buckets, Order: upload(b, make([]int32, 2*heads*n)), Starts: upload(b, make([]int32, heads*2*(buckets+1))),
	}
	if b.err != nil {
		return b.err
	}
	spans := b.rounds(rounds, func() {
		b.k.AttentionForward(b.stream, out, lse, qkv, offsets, 1, n, n, c.Hidden, heads, heads)
		b.k.AttentionBackward(b.stream, dqkv, dout, qkv, out, lse, offsets, 1, n, n, c.Hidden, heads, heads)
	}, func() {
		b.k.AttentionHash(b.stream, h, pairs, qkv, offsets, 1, 1, n, n, c.Hidden, heads)
		b.k.SparseAttentionForward(b.stream, out, lse, qkv, offsets, h, 1, n, n, c.Hidden, heads)
		b.k.SparseAttentionBackward(b.stream, dqkv, dout, qkv, out, lse, offsets, h, 1, n, n, c.Hidden, heads)
	})
	wanted := b.referenceBuckets(qkv, dout, offsets, h, n, c.Hidden, heads)
	wrong, count := 0, b.pairs(pairs)
	for i, got := range [][]float32{b.download(out), b.download(dqkv)} {
		check := checker{}
		for j := range got {
			check.within(float64(got[j]), float64(wanted[i][j]), bucketTolerance)
		}
		wrong += check.wrong
	}
	b.add("dynamism/attention_speedup", spans.ratio(0, 1, 1), "ratio", 3, wrong)
	b.add("dynamism/attention_pairs", single(count[0]/count[1]), "share", 0, wrong)
	return b.err
}

// bucketTolerance is the largest error of an element: sums of normal numbers, weighed by
// probabilities.
const bucketTolerance = 1e-4

// pairs returns what AttentionHash counted.
func (b *bench) pairs(from tensor.Mem) [2]float64 {
	var count [2]float64
	b.stream.Copy(tensor.From(count[:]), from)
	b.sync()
	return count
}

// referenceBuckets returns outputs and gradients as the reference has them.
func (b *bench) referenceBuckets(qkv, dout, offsets tensor.Mem, h kernel.Buckets, n, c, heads int) [2][]float32 {
	k := ref.New(tensor.F32)
	out, dqkv := make([]float32, n*c), make([]float32, n*3*c)
	x, dy, lse := b.download(qkv), b.download(dout), make([]float32, n*heads)
	host := func(m tensor.Mem) tensor.Mem {
		list := make([]int32, m.Bytes/tensor.I32.Size())
		b.stream.Copy(tensor.From(list), m)
		b.sync()
		return tensor.From(list)
	}
	h.Order, h.Starts, offsets = host(h.Order), host(h.Starts), host(offsets)
	k.SparseAttentionForward(nil, tensor.From(out), tensor.From(lse), tensor.From(x), offsets, h, 1, n, n, c, heads)
	k.SparseAttentionBackward(nil, tensor.From(dqkv), tensor.From(dy), tensor.From(x), tensor.From(out), tensor.From(lse), offsets, h, 1, n, n, c, heads)
	return [2][]float32{out, dqkv}
}
