package ref

import (
	"math"
	"testing"
)

// TestSparseAttentionGradient: the hash, which has no derivative, is held fixed.
func TestSparseAttentionGradient(t *testing.T) {
	const n, longest, c, nh, buckets = 21, 11, 6, 2, 4
	offsets := []int32{0, 9, 9, 10, 21} // sequences of 9, 0, 1 and 11 tokens
	r := newGradients(t)
	qkv, dout := r.normal(n*3*c), r.normal(n*c)
	order, starts, pairs := make([]int32, 2*nh*n), make([]int32, 4*nh*2*(buckets+1)), make([]float64, 2)
	attentionHash(order, starts, pairs, qkv, offsets, r.normal(c*buckets/2), buckets, false, c, nh)
	if pairs[0] == 0 || pairs[0] > pairs[1]/2 || pairs[1] != nh*(45+1+66) {
		t.Fatalf("pairs are %v: want some of %d", pairs, nh*(45+1+66))
	}
	out, lse := make([]float64, n*c), make([]float64, nh*n)
	objective := func() float64 {
		sparseAttentionForward(out, lse, qkv, offsets, order, starts, longest, buckets, c, nh)
		return dot(out, dout)
	}
	objective() // stores out and lse
	blind := 0  // queries without a key
	for _, l := range lse {
		if math.IsInf(l, -1) {
			blind++
		}
	}
	if blind == 0 || blind == len(lse) {
		t.Errorf("%d of %d queries see no key: want some", blind, len(lse))
	}
	dqkv := make([]float64, len(qkv))
	sparseAttentionBackward(dqkv, dout, qkv, out, lse, offsets, order, starts, longest, buckets, c, nh)
	r.agree("dqkv", qkv, dqkv, make([]float64, len(qkv)), objective)
}

// TestShareKeysGradient: keys are made of queries; that of a query of 0 is 0.
func TestShareKeysGradient(t *testing.T) {
	const n, c, nh = 5, 6, 2
	r := newGradients(t)
	qv, dqkv := r.normal(n*2*c), r.normal(n*3*c)
	qkv, dqv := make([]float64, n*3*c), make([]float64, n*2*c)
	objective := func() float64 {
		shareKeys(qkv, qv, n, c, nh)
		return dot(qkv, dqkv)
	}
	objective()
	shareKeysGradient(dqv, dqkv, qkv, n, c, nh)
	r.agree("dqv", qv, dqv, make([]float64, len(qv)), objective)
	clear(qv[:c])
	objective()
	if k := qkv[c:][:c]; dot(k, k) != 0 {
		t.Errorf("keys of queries of 0: %v", k)
	}
}
