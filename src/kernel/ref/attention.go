package ref

import (
	"iter"
	"math"
)

// attentionForward is causal multi-head attention (Vaswani et al. 2017) within
// sequences: the i-th is tokens [offsets[i], offsets[i+1]) of n. qkv holds queries, nh
// heads of c/nh channels, keys and values, each kv heads: head h has those of
// h/(nh/kv) (Ainslie et al. 2023). For every head and every row i, over the rows
// j <= i of the same sequence,
//
//	s_j  = q_i·k_j / sqrt(c/nh)
//	lse  = log Σ_j exp(s_j)
//	out  = Σ_j exp(s_j - lse)·v_j
//
// It stores lse for the backward pass: of each sequence (nh, its tokens). One row
// of scores is alive at a time.
func attentionForward[F Float](out, lse, qkv []F, offsets []int32, longest, c, nh, kv int) {
	hs, width := c/nh, rowWidth(c, nh, kv)
	p := make([]F, longest)
	for h := range heads(offsets, c, nh, kv) {
		q, k, v := parts(qkv, h)
		y := out[h.at:]
		for i := range h.t {
			row := y[i*c:][:hs]
			p := p[:i+1]
			scores(p, q[i*width:][:hs], k, width)
			l := logSumExp(p)
			probabilities(p, l)
			clear(row)
			vecmat(row, p, v, width)
			lse[h.sums+i] = F(l)
		}
	}
}

// attentionBackward sets dqkv from dout (n, c), with out and lse
// as AttentionForward left them. The probabilities p_j = exp(s_j - lse) are
// made again row by row (Dao et al. 2022, section 3.1). For row i, summed over
// all rows, and over the heads in ascending order, into dk and dv,
//
//	ds_j  = p_j·(dout_i·v_j - dout_i·out_i) / sqrt(c/nh)
//	dq_i  = Σ_j ds_j·k_j
//	dk_j += ds_j·q_i
//	dv_j += p_j·dout_i
func attentionBackward[F Float](dqkv, dout, qkv, out, lse []F, offsets []int32, longest, c, nh, kv int) {
	hs, width := c/nh, rowWidth(c, nh, kv)
	scale := F(1 / math.Sqrt(float64(hs)))
	p, ds := make([]F, longest), make([]F, longest)
	clear(dqkv)
	for h := range heads(offsets, c, nh, kv) {
		q, k, v := parts(qkv, h)
		dq, dk, dv := parts(dqkv, h)
		y, dy := out[h.at:], dout[h.at:]
		for i := range h.t {
			qi, dyi := q[i*width:][:hs], dy[i*c:][:hs]
			p, ds := p[:i+1], ds[:i+1]
			scores(p, qi, k, width)
			probabilities(p, float64(lse[h.sums+i]))
			mean := dot(dyi, y[i*c:][:hs]) // of dout·v under p
			matvec(ds, dyi, v, width)
			for j := range ds {
				ds[j] = p[j] * (ds[j] - mean) * scale
				axpy(dk[j*width:][:hs], ds[j], qi)
				axpy(dv[j*width:][:hs], p[j], dyi)
			}
			vecmat(dq[i*width:][:hs], ds, k, width)
		}
	}
}

// head is one head of one sequence of t tokens: where its queries, keys and values
// begin in qkv, its rows in a matrix (n, c), and its sums in lse.
type head struct{ t, query, key, value, at, sums int }

// heads yields every head of every sequence, nh of queries and kv of keys and values.
func heads(offsets []int32, c, nh, kv int) iter.Seq[head] {
	return func(yield func(head) bool) {
		for i := range len(offsets) - 1 {
			first, t := int(offsets[i]), int(offsets[i+1]-offsets[i])
			for number := range min(t*nh, nh) { // none of an empty sequence
				if !yield(headAt(first, t, number, c, nh, kv)) {
					return
				}
			}
		}
	}
}

// headAt returns head `number` of the sequence of t tokens from first on.
func headAt(first, t, number, c, nh, kv int) head {
	hs := c / nh
	row, key := first*rowWidth(c, nh, kv), c+number/(nh/kv)*hs
	return head{t, row + number*hs, row + key, row + key + kv*hs, first*c + number*hs, first*nh + number*t}
}

// rowWidth is the channels of queries, keys and values together.
func rowWidth(c, nh, kv int) int { return c + 2*kv*(c/nh) }

// parts returns where the queries, keys and values of a head begin in qkv. Their
// rows are rowWidth apart.
func parts[F Float](qkv []F, h head) (q, k, v []F) {
	return qkv[h.query:], qkv[h.key:], qkv[h.value:]
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
