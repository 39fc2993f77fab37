package ref

import (
	"iter"
	"math"
)

// AttentionForward is causal multi-head attention (Vaswani et al. 2017) within
// sequences: the i-th is tokens [offsets[i], offsets[i+1]) of n. qkv (n, 3c) holds
// queries, keys and values, each nh heads of c/nh channels. For every head and
// every row i, over the rows j <= i of the same sequence,
//
//	s_j  = q_i·k_j / sqrt(c/nh)
//	lse  = log Σ_j exp(s_j)
//	out  = Σ_j exp(s_j - lse)·v_j
//
// It stores lse for the backward pass: of each sequence (nh, its tokens). One row
// of scores is alive at a time.
func AttentionForward[F Float](out, lse, qkv []F, offsets []int32, longest, c, nh int) {
	hs := c / nh
	p := make([]F, longest)
	for h := range heads(offsets, c, nh) {
		q, k, v := parts(qkv, h, c)
		y := out[h.at:]
		for i := range h.t {
			row := y[i*c:][:hs]
			p := p[:i+1]
			scores(p, q[i*3*c:][:hs], k, 3*c)
			l := logSumExp(p)
			probabilities(p, l)
			clear(row)
			vecmat(row, p, v, 3*c)
			lse[h.sums+i] = F(l)
		}
	}
}

// AttentionBackward sets dqkv (n, 3c) from dout (n, c), with out and lse
// as AttentionForward left them. The probabilities p_j = exp(s_j - lse) are
// made again row by row (Dao et al. 2022, section 3.1). For row i, summed over
// all rows into dk and dv,
//
//	ds_j  = p_j·(dout_i·v_j - dout_i·out_i) / sqrt(c/nh)
//	dq_i  = Σ_j ds_j·k_j
//	dk_j += ds_j·q_i
//	dv_j += p_j·dout_i
func AttentionBackward[F Float](dqkv, dout, qkv, out, lse []F, offsets []int32, longest, c, nh int) {
	hs := c / nh
	scale := F(1 / math.Sqrt(float64(hs)))
	p, ds := make([]F, longest), make([]F, longest)
	clear(dqkv)
	for h := range heads(offsets, c, nh) {
		q, k, v := parts(qkv, h, c)
		dq, dk, dv := parts(dqkv, h, c)
		y, dy := out[h.at:], dout[h.at:]
		for i := range h.t {
			qi, dyi := q[i*3*c:][:hs], dy[i*c:][:hs]
			p, ds := p[:i+1], ds[:i+1]
			scores(p, qi, k, 3*c)
			probabilities(p, float64(lse[h.sums+i]))
			mean := dot(dyi, y[i*c:][:hs]) // of dout·v under p
			matvec(ds, dyi, v, 3*c)
			for j := range ds {
				ds[j] = p[j] * (ds[j] - mean) * scale
				axpy(dk[j*3*c:][:hs], ds[j], qi)
				axpy(dv[j*3*c:][:hs], p[j], dyi)
			}
			vecmat(dq[i*3*c:][:hs], ds, k, 3*c)
		}
	}
}

// head is one head of one sequence of t tokens: where its rows begin, in a matrix
// (n, 3c), in one (n, c), and in lse.
type head struct{ t, in, at, sums int }

// heads yields every head of every sequence.
func heads(offsets []int32, c, nh int) iter.Seq[head] {
	return func(yield func(head) bool) {
		for i := range len(offsets) - 1 {
			first, t := int(offsets[i]), int(offsets[i+1]-offsets[i])
			for number := range min(t*nh, nh) { // none of an empty sequence
				column := number * (c / nh)
				if !yield(head{t, first*3*c + column, first*c + column, first*nh + number*t}) {
					return
				}
			}
		}
	}
}

// parts returns where the queries, keys and values of a head begin in qkv. Their
// rows are 3c apart.
func parts[F Float](qkv []F, h head, c int) (q, k, v []F) {
	return qkv[h.in:], qkv[h.in+c:], qkv[h.in+2*c:]
}

// scores sets s_j = q·k_j / sqrt(len(q)), the rows of k stride apart.
func scores[F Float](s, q, k []F, stride int) {
	scale := F(1 / math.Sqrt(float64(len(q))))
	matvec(s, q, k, stride)
	for j := range s {
		s[j] *= scale
	}
}

// probabilities replaces the scores s by exp(s - lse).
func probabilities[F Float](s []F, lse float64) {
	for j, sj := range s {
		s[j] = F(math.Exp(float64(sj) - lse))
	}
}

// logSumExp returns log Σ_j exp(x_j), safe from overflow.
func logSumExp[F Float](x []F) float64 {
	largest := math.Inf(-1)
	for _, xj := range x {
		largest = max(largest, float64(xj))
	}
	var sum float64
	for _, xj := range x {
		sum += math.Exp(float64(xj) - largest)
	}
	return largest + math.Log(sum)
}
