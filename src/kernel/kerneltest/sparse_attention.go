package kerneltest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"dynmo/src/device"
	"dynmo/src/kernel"
)

// hashed returns the call on small integers. Their sums are exact, so equal products are equal in
// every order of the sum. Keys have buckets of their own, and the buckets of the queries.
func (of maker) hashed(lengths []int, longest, c, nh, buckets int) (all []example) {
	r, d, offsets := of.draw(givenSeed), sparseDims(lengths, longest, c, nh, buckets), offsetsOf(lengths)
	integers := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = float64(r.IntN(7) - 3)
		}
		return x
	}
	qkv, projections := integers(d.N*3*c), integers(c*(buckets/2))
	for _, shared := range []bool{false, true} {
		order, starts, pairs := bucketsOf(d, offsets, hashBucket(d, qkv, projections, shared))
		given := map[string]any{
			"offsets": offsets, "qkv": qkv, "projections": projections,
			"h.Order": slices.Repeat([]int32{-1}, len(order)), "h.Starts": slices.Repeat([]int32{-1}, len(starts)),
		}
		note := noteOf(lengths, buckets) + fmt.Sprintf(",shared=%v", shared)
		all = append(all, of.example(kernel.Call{Op: kernel.AttentionHash, Dims: d, Shared: shared}, note, given,
			func(kernel.Call, values) (want, bound values) {
				return values{"h.Order": widened(order), "h.Starts": widened(starts), "pairs": pairs}, nil
			}))
	}
	return all
}

// sharedKeys returns the calls that make keys of queries.
func (of maker) sharedKeys(n, c, nh int) []example {
	d := kernel.Dims{N: n, C: c, NH: nh}
	qv := of.draw(givenSeed).normal(n * 2 * c)
	clear(qv[:min(len(qv), c/max(nh, 1))]) // a query of length 0
	forward := of.example(kernel.Call{Op: kernel.ShareKeys, Dims: d}, "", map[string]any{"qv": qv}, of.bounded(summed))
	gradient := kernel.Call{Op: kernel.ShareKeysGradient, Dims: d}
	return []example{forward, of.example(gradient, "", nil, of.bounded(func(d kernel.Dims, before, want values) values {
		bounds := summed(d, before, want)
		for i := range bounds["dqv"] { // what is along the query cancels
			bounds["dqv"][i] += 10
		}
		return bounds
	}))}
}

// sparseAttention returns both calls, with buckets as the definition gives them.
func (of maker) sparseAttention(lengths []int, longest, c, nh, buckets int) []example {
	d := sparseDims(lengths, longest, c, nh, buckets)
	qkv := of.draw(givenSeed).normal(d.N * 3 * c)
	projections := of.draw(drawnSeed).normal(c * (buckets / 2))
	return of.bucketed(d, lengths, qkv, noteOf(lengths, buckets), hashBucket(d, qkv, projections, false))
}

// someQueries returns both calls where all keys are in the first of two buckets, and
// queries of some tokens: the others see none.
func (of maker) someQueries(lengths []int, longest, c, nh int) []example {
	d := sparseDims(lengths, longest, c, nh, 2)
	qkv := of.draw(givenSeed).normal(d.N * 3 * c)
	return of.bucketed(d, lengths, qkv, noteOf(lengths, 2)+",some queries", func(token, p, _ int) int {
		if p == 0 && token/5%3 == 1 {
			return 1
		}
		return 0
	})
}

// bucketed returns both calls; backward is given the out and lse of the reference, rounded.
func (of maker) bucketed(d kernel.Dims, lengths []int, qkv []float64, note string, bucket bucketing) []example {
	r, offsets := of.draw(givenSeed), offsetsOf(lengths)
	order, starts, _ := bucketsOf(d, offsets, bucket)
	given := map[string]any{"offsets": offsets, "qkv": qkv, "h.Order": order, "h.Starts": starts}
	sees := seesOf(d, offsets, bucket)
	forward := kernel.Call{Op: kernel.SparseAttentionForward, Dims: d}
	first := of.example(forward, note, given, func(c kernel.Call, x values) (want, bound values) {
		want = reference(c, x)
		out, lse, _ := attentionBounds(d, x["offsets"], make([]float64, d.N*d.C), qkv, want["out"], want["lse"], sees)
		return want, values{"out": out, "lse": lse}
	})
	given["out"], given["lse"] = r.rounded(first.operands[0].want), single(first.operands[1].want)
	backward := kernel.Call{Op: kernel.SparseAttentionBackward, Dims: d}
	return []example{first, of.example(backward, note, given, func(c kernel.Call, x values) (values, values) {
		_, _, bound := attentionBounds(d, x["offsets"], x["dout"], qkv, first.operands[0].want, first.operands[1].want, sees)
		return reference(c, x), values{"dqkv": bound}
	})}
}

func noteOf(lengths []int, buckets int) string {
	return fmt.Sprintf(",buckets=%d,t=%v", buckets, lengths)
}

func sparseDims(lengths []int, longest, c, nh, buckets int) kernel.Dims {
	n := 0
	for _, t := range lengths {
		n += t
	}
	return kernel.Dims{B: len(lengths), Longest: longest, N: n, C: c, NH: nh, Buckets: buckets}
}

// offsetsOf returns where sequences of these lengths begin.
func offsetsOf(lengths []int) []int32 {
	offsets := []int32{0}
	for i, t := range lengths {
		offsets = append(offsets, offsets[i]+int32(t))
	}
	return offsets
}

// bucketing returns the bucket of a token's query (p is 0) or key (1) of a head.
type bucketing func(token, p, head int) int

// hashBucket is the bucketing of AttentionHash.
func hashBucket(d kernel.Dims, qkv, projections []float64, shared bool) bucketing {
	return func(token, p, head int) int {
		if shared {
			p = 0
		}
		own := d.C / d.NH * (d.Buckets / 2)
		return bucketOf(vectorOf(d, qkv, token, p, head), projections[head*own:][:own])
	}
}

// bucketOf returns the bucket of a head's vector by its definition.
func bucketOf(x, projections []float64) int {
	var products []float64
	for row := range slices.Chunk(projections, len(x)) {
		sum := 0.0
		for i := range x {
			sum += x[i] * row[i]
		}
		products = append(products, sum)
	}
	for _, product := range slices.Clone(products) {
		products = append(products, -product)
	}
	if products == nil {
		return 0
	}
	return slices.Index(products, slices.Max(products))
}

// vectorOf returns part p (0 queries, 1 keys) of a token's head.
func vectorOf(d kernel.Dims, qkv []float64, token, p, head int) []float64 {
	hs := d.C / d.NH
	return qkv[(token*3+p)*d.C+head*hs:][:hs]
}

// seesOf returns whether query i of a head of a sequence has a score with key j.
func seesOf(d kernel.Dims, offsets []int32, of bucketing) func(sequence, head, i, j int) bool {
	at := func(sequence, i, p, head int) int { return ((int(offsets[sequence])+i)*2+p)*d.NH + head }
	bucket := make([]int, 2*d.N*d.NH)
	for i := range bucket {
		bucket[i] = of(i/d.NH/2, i/d.NH%2, i%d.NH)
	}
	return func(sequence, head, i, j int) bool {
		return j <= i && bucket[at(sequence, i, 0, head)] == bucket[at(sequence, j, 1, head)]
	}
}

// bucketsOf sorts by comparing buckets.
func bucketsOf(d kernel.Dims, offsets []int32, bucket bucketing) (order, starts []int32, pairs []float64) {
	pairs = make([]float64, 2)
	for sequence := range d.B {
		first, t := int(offsets[sequence]), int(offsets[sequence+1]-offsets[sequence])
		for head := range d.NH {
			var of [2][]int
			for p := range of {
				sorted := make([]int32, t)
				for i := range sorted {
					sorted[i] = int32(i)
					of[p] = append(of[p], bucket(first+i, p, head))
				}
				slices.SortStableFunc(sorted, func(a, b int32) int { return of[p][a] - of[p][b] })
				order = append(order, sorted...)
				for bucket := range d.Buckets + 1 {
					below := 0
					for _, b := range of[p] {
						if b < bucket {
							below++
						}
					}
					starts = append(starts, int32(below))
				}
			}
			for i := range t {
				for j := range i + 1 {
					pairs[1]++
					if of[0][i] == of[1][j] {
						pairs[0]++
					}
				}
			}
		}
	}
	return order, starts, pairs
}

// oneBucket asserts that attention in one bucket has the bits of attention. In bfloat16
// they may differ: that may use matrix units, which have another order of sums.
func oneBucket(t *testing.T, k kernel.Backend, dev device.Device) {
	if k.DType().Wide() != k.DType() {
		t.Skip("elements of " + k.DType().String())
	}
	of, lengths := maker{k.DType(), k.Products()}, []int{70, 0, 1, 130, 33}
	for _, hs := range []int{5, 32, 64} {
		dense, sparse := of.attention(lengths, 140, 2*hs, 2), of.sparseAttention(lengths, 140, 2*hs, 2, 1)
		for i := range dense {
			for p := range dense[i].operands {
				sparse[i].operands[p].data = dense[i].operands[p].data
			}
			want, got := results(t, k, dev, dense[i]), results(t, k, dev, sparse[i])
			if !slices.EqualFunc(want, got[:len(want)], bytes.Equal) {
				t.Errorf("%s of head size %d: other bits in one bucket", dense[i].Op, hs)
			}
		}
	}
}
