package kerneltest

import (
	"fmt"
	"math"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

// attention returns both calls; backward is given the out and lse of the
// reference, rounded.
func (of maker) attention(b, t, c, nh int) []call {
	r := of.draw()
	shape := fmt.Sprintf("b=%d,t=%d,c=%d,nh=%d", b, t, c, nh)
	qkv, dout := r.normal(b*t*3*c), r.normal(b*t*c)
	out, lse := make([]float64, b*t*c), make([]float64, b*nh*t)
	ref.AttentionForward(out, lse, qkv, b, t, c, nh)
	givenOut, givenLSE := r.rounded(out), single(lse)
	dqkv := make([]float64, b*t*3*c)
	ref.AttentionBackward(dqkv, dout, qkv, givenOut, givenLSE, b, t, c, nh)

	outBound, lseBound, dqkvBound := make([]float64, len(out)), make([]float64, len(lse)), make([]float64, len(dqkv))
	for head := range b * nh {
		attentionBounds(outBound, lseBound, dqkvBound, dout, qkv, out, lse, head, t, c, nh)
	}
	return []call{{
		"AttentionForward/" + shape,
		[]operand{set(out, outBound), setWide(lse, lseBound), in(qkv)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.AttentionForward(s, m[0], m[1], m[2], b, t, c, nh)
		},
	}, {
		"AttentionBackward/" + shape,
		[]operand{set(dqkv, dqkvBound), in(dout), in(qkv), in(givenOut), inWide(givenLSE)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.AttentionBackward(s, m[0], m[1], m[2], m[3], m[4], b, t, c, nh)
		},
	}}
}

// attentionBounds fills in the bounds of one head of b·nh. With
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
	b, h := head/nh, head%nh
	q := func(i int) int { return (b*t+i)*3*c + h*hs } // where row i of each begins
	k := func(i int) int { return q(i) + c }
	v := func(i int) int { return q(i) + 2*c }
	o := func(i int) int { return (b*t+i)*c + h*hs }

	terms := make([]float64, t) // S_ij
	for i := range t {
		largest := 0.0
		for j := range i + 1 {
			terms[j] = scale * absDot(qkv[q(i):], qkv[k(j):], hs)
			largest = max(largest, terms[j])
		}
		li := l[head*t+i]
		lse[head*t+i] = 1 + largest + math.Abs(li)
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
