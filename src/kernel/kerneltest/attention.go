package kerneltest

import (
	"fmt"
	"math"
	"slices"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

// equal returns the lengths of b sequences of t tokens.
func equal(b, t int) []int { return slices.Repeat([]int{t}, b) }

// attention returns both calls on sequences of these lengths, none more than
// longest; backward is given the out and lse of the reference, rounded.
func (of maker) attention(lengths []int, longest, c, nh int) []call {
	r, b, offsets := of.draw(), len(lengths), []int32{0}
	for i, t := range lengths {
		offsets = append(offsets, offsets[i]+int32(t))
	}
	n := int(offsets[b])
	shape := fmt.Sprintf("t=%v,longest=%d,c=%d,nh=%d", lengths, longest, c, nh)
	qkv, dout := r.normal(n*3*c), r.normal(n*c)
	out, lse := make([]float64, n*c), make([]float64, nh*n)
	ref.AttentionForward(out, lse, qkv, offsets, longest, c, nh)
	givenOut, givenLSE := r.rounded(out), single(lse)
	dqkv := make([]float64, n*3*c)
	ref.AttentionBackward(dqkv, dout, qkv, givenOut, givenLSE, offsets, longest, c, nh)

	outBound, lseBound, dqkvBound := make([]float64, len(out)), make([]float64, len(lse)), make([]float64, len(dqkv))
	for i, t := range lengths {
		rows, sums := int(offsets[i])*c, int(offsets[i])*nh
		for head := range nh {
			attentionBounds(outBound[rows:], lseBound[sums+head*t:], dqkvBound[3*rows:], dout[rows:], qkv[3*rows:],
				out[rows:], lse[sums+head*t:], head, t, c, nh)
		}
	}
	return []call{{
		"AttentionForward/" + shape,
		[]operand{set(out, outBound), setWide(lse, lseBound), in(qkv), in(offsets)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.AttentionForward(s, m[0], m[1], m[2], m[3], b, longest, n, c, nh)
		},
	}, {
		"AttentionBackward/" + shape,
		[]operand{set(dqkv, dqkvBound), in(dout), in(qkv), in(givenOut), inWide(givenLSE), in(offsets)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.AttentionBackward(s, m[0], m[1], m[2], m[3], m[4], m[5], b, longest, n, c, nh)
		},
	}}
}

// attentionBounds fills in the bounds of one head of a sequence. With
// S_ij = |q_i|·|k_j|/sqrt(hs), the terms of a score, a probability p_ij has a
// relative error of at most e_ij = 1 + S_ij + max_j S_ij + |lse_i| units, and
//
//	out_i: Σ_j e_ij·p_ij·|v_j|            lse_i: 1 + max_j S_ij + |lse_i|
//	ds_ij: e_ij·p_ij·(|dout_i|·|v_j| + |dout_i|·|out_i|)/sqrt(hs)
//	dq_i:  Σ_j ds_ij·|k_j|                dk_j:  Σ_i ds_ij·|q_i|
//	dv_j:  Σ_i e_ij·p_ij·|dout_i|
func attentionBounds(out, lse, dqkv []float64, dy, qkv, y, l []float64, head, t, c, nh int) {
	hs := c / nh
	scale := 1 / math.Sqrt(float64(hs))
	q := func(i int) int { return i*3*c + head*hs } // where row i of each begins
	k := func(i int) int { return q(i) + c }
	v := func(i int) int { return q(i) + 2*c }
	o := func(i int) int { return i*c + head*hs }

	terms := make([]float64, t) // S_ij
	for i := range t {
		largest := 0.0
		for j := range i + 1 {
			terms[j] = scale * absDot(qkv[q(i):], qkv[k(j):], hs)
			largest = max(largest, terms[j])
		}
		li := l[i]
		lse[i] = 1 + largest + math.Abs(li)
		mean := absDot(dy[o(i):], y[o(i):], hs)
		for j := range i + 1 {
			p := math.Exp(scale*dot(qkv[q(i):], qkv[k(j):], hs) - li)
			p *= 1 + terms[j] + largest + math.Abs(li)
			ds := p * scale * (absDot(dy[o(i):], qkv[v(j):], hs) + mean)
			for x := range hs {
				out[o(i)+x] += p * math.Abs(qkv[v(j)+x])
				dqkv[q(i)+x] += ds * math.Abs(qkv[k(j)+x])
				dqkv[k(j)+x] += ds * math.Abs(qkv[q(i)+x])
				dqkv[v(j)+x] += p * math.Abs(dy[o(i)+x])
			}
		}
	}
}

// dot returns Σ x·y over n elements.
func dot(x, y []float64, n int) (sum float64) {
	for i := range n {
		sum += x[i] * y[i]
	}
	return sum
}

// absDot returns Σ |x|·|y| over n elements.
func absDot(x, y []float64, n int) (sum float64) {
	for i := range n {
		sum += math.Abs(x[i] * y[i])
	}
	return sum
}
