package ref

import (
	"iter"
	"math"
	"math/bits"

	"dynmo/src/kernel"
)

// sorted is the tokens of one head of one sequence by bucket, its queries and its
// keys: positions in the sequence, and where each bucket begins.
type sorted struct {
	head
	number               int // of the head among the sequence's
	queries, keys        []int32
	queryStart, keyStart []int32
}

// sorts yields every head of every sequence that is not empty.
func sorts(order, starts, offsets []int32, buckets, c, nh int) iter.Seq[sorted] {
	return func(yield func(sorted) bool) {
		for i := range len(offsets) - 1 {
			first, t := int(offsets[i]), int(offsets[i+1]-offsets[i])
			for number := range min(t*nh, nh) {
				h := headAt(first, t, number, c, nh, nh)
				of, ends := order[2*h.sums:][:2*t], starts[(i*nh+number)*2*(buckets+1):][:2*(buckets+1)]
				if !yield(sorted{h, number,
					of[:t], of[t:], ends[:buckets+1], ends[buckets+1:]}) {
					return
				}
			}
		}
	}
}

// rows yields the position of every query, bucket by bucket, and those of the keys that
// it sees: the ones of its bucket that are not behind it.
func (s sorted) rows() iter.Seq2[int, []int32] {
	return func(yield func(int, []int32) bool) {
		for b := range len(s.queryStart) - 1 {
			keys := s.keys[s.keyStart[b]:s.keyStart[b+1]]
			seen := 0
			for _, query := range s.queries[s.queryStart[b]:s.queryStart[b+1]] {
				for seen < len(keys) && keys[seen] <= query {
					seen++
				}
				if !yield(int(query), keys[:seen]) {
					return
				}
			}
		}
	}
}

// attentionHash sorts the queries and the keys of every head of every sequence of qkv
// (n, 3c) by bucket, as kernel.Backend says, and counts in pairs those that
// SparseAttentionForward has scores of, and all that are causal.
func attentionHash[F Float](order, starts []int32, pairs []float64, qkv []F, offsets []int32, key uint64, buckets, c, nh int) {
	clear(pairs)
	clear(starts)
	for h := range sorts(order, starts, offsets, buckets, c, nh) {
		signs := projections[F](key, h.number, c/nh, buckets)
		q, k, _ := parts(qkv, h.head)
		sortByBucket(h.queries, h.queryStart, q, signs, 3*c)
		sortByBucket(h.keys, h.keyStart, k, signs, 3*c)
		for _, keys := range h.rows() {
			pairs[0] += float64(len(keys))
		}
		pairs[1] += float64(h.t) * float64(h.t+1) / 2
	}
}

// projections returns the random signs of a head, one row of hs for each bit of a bucket.
func projections[F Float](key uint64, head, hs, buckets int) [][]F {
	rows, words := make([][]F, bits.Len(uint(buckets))-1), (hs+63)/64
	for bit := range rows {
		rows[bit] = make([]F, hs)
		for x := range rows[bit] {
			rows[bit][x] = 1
			if kernel.Signs(key, (head*len(rows)+bit)*words+x/64)>>(x%64)&1 != 0 {
				rows[bit][x] = -1
			}
		}
	}
	return rows
}

// sortByBucket fills in order and starts for the rows x, which are stride apart.
func sortByBucket[F Float](order, starts []int32, x []F, signs [][]F, stride int) {
	bucket := make([]int, len(order))
	for i := range bucket {
		for bit, row := range signs {
			if dot(x[i*stride:][:len(row)], row) > 0 {
				bucket[i] |= 1 << bit
			}
		}
		starts[bucket[i]+1]++
	}
	for b := range len(starts) - 1 {
		starts[b+1] += starts[b]
	}
	next := append([]int32(nil), starts...)
	for i, b := range bucket {
		order[next[b]] = int32(i)
		next[b]++
	}
}

// sparseAttentionForward is AttentionForward where query i sees of the rows j <= i only
// the keys of its bucket. One that sees none has output 0 and lse -Inf.
func sparseAttentionForward[F Float](out, lse, qkv []F, offsets, order, starts []int32, longest, buckets, c, nh int) {
	hs := c / nh
	p := make([]F, longest)
	for h := range sorts(order, starts, offsets, buckets, c, nh) {
		q, k, v := parts(qkv, h.head)
		for i, keys := range h.rows() {
			row, p := out[h.at+i*c:][:hs], p[:len(keys)]
			clear(row)
			if len(keys) == 0 {
				lse[h.sums+i] = F(math.Inf(-1))
				continue
			}
			sparseScores(p, q[i*3*c:][:hs], k, keys, 3*c)
			l := logSumExp(p)
			probabilities(p, l)
			for j, key := range keys {
				axpy(row, p[j], v[int(key)*3*c:][:hs])
			}
			lse[h.sums+i] = F(l)
		}
	}
}

// sparseAttentionBackward is AttentionBackward of SparseAttentionForward. A key's sums
// are in ascending order of the queries that see it.
func sparseAttentionBackward[F Float](dqkv, dout, qkv, out, lse []F, offsets, order, starts []int32, longest, buckets, c, nh int) {
	hs := c / nh
	scale := F(1 / math.Sqrt(float64(hs)))
	p := make([]F, longest)
	clear(dqkv)
	for h := range sorts(order, starts, offsets, buckets, c, nh) {
		q, k, v := parts(qkv, h.head)
		dq, dk, dv := parts(dqkv, h.head)
		for i, keys := range h.rows() {
			qi, dyi, dqi, p := q[i*3*c:][:hs], dout[h.at+i*c:][:hs], dq[i*3*c:][:hs], p[:len(keys)]
			sparseScores(p, qi, k, keys, 3*c)
			probabilities(p, float64(lse[h.sums+i]))
			mean := dot(dyi, out[h.at+i*c:][:hs]) // of dout·v under p
			for j, key := range keys {
				at := int(key) * 3 * c
				ds := p[j] * (dot(dyi, v[at:][:hs]) - mean) * scale
				axpy(dk[at:][:hs], ds, qi)
				axpy(dv[at:][:hs], p[j], dyi)
				axpy(dqi, ds, k[at:][:hs])
			}
		}
	}
}

// sparseScores sets s_j = q·k_j / sqrt(len(q)) for the keys that are seen.
func sparseScores[F Float](s, q, k []F, keys []int32, stride int) {
	scale := F(1 / math.Sqrt(float64(len(q))))
	for j, key := range keys {
		s[j] = dot(q, k[int(key)*stride:][:len(q)]) * scale
	}
}
