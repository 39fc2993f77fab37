package ref

import (
	"iter"
	"math"
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

// attentionHash sorts the queries and the keys of every head of every sequence of qkv (n, 3c) by
// bucket, as kernel.Backend says. In pairs it counts the pairs that SparseAttentionForward scores,
// and all causal pairs.
func attentionHash[F Float](order, starts []int32, pairs []float64, qkv []F, offsets []int32, projections []F, buckets int, shared bool, c, nh int) {
	clear(pairs)
	clear(starts)
	for h := range sorts(order, starts, offsets, buckets, c, nh) {
		own := projections[h.number*(c/nh)*(buckets/2):][:(c/nh)*(buckets/2)]
		q, k, _ := parts(qkv, h.head)
		if shared {
			k = q
		}
		sortByBucket(h.queries, h.queryStart, q, own, c/nh, 3*c)
		sortByBucket(h.keys, h.keyStart, k, own, c/nh, 3*c)
		for _, keys := range h.rows() {
			pairs[0] += float64(len(keys))
		}
		pairs[1] += float64(h.t) * float64(h.t+1) / 2
	}
}

// BucketOf returns the place of the largest product of x with projections, rows as long as x,
// and with their opposites; of equal ones the first.
func BucketOf[F Float](x []F, projections []F) (bucket int) {
	largest, half := math.Inf(-1), len(projections)/len(x)
	for side := range 2 {
		for i := range half {
			sum := F(0)
			for k, r := range projections[i*len(x):][:len(x)] {
				sum += x[k] * r
			}
			if product := float64(1-2*side) * float64(sum); product > largest {
				largest, bucket = product, side*half+i
			}
		}
	}
	return bucket
}

// sortByBucket fills in order and starts for the rows x, which are stride apart.
func sortByBucket[F Float](order, starts []int32, x []F, projections []F, hs, stride int) {
	bucket := make([]int, len(order))
	for i := range bucket {
		bucket[i] = BucketOf(x[i*stride:][:hs], projections)
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

// least is the smallest length that a key is made of its query by.
const least = 1e-12

// shareKeys sets the rows of qkv (n, 3c) to those of qv (n, 2c) with a key between query and
// value, as kernel.Backend says.
func shareKeys[F Float](qkv, qv []F, n, c, nh int) {
	hs := c / nh
	for i := range n {
		row := qkv[i*3*c:][:3*c]
		copy(row, qv[i*2*c:][:c])
		copy(row[2*c:], qv[i*2*c+c:][:c])
		for at := 0; at < c; at += hs {
			q := row[at:][:hs]
			scale := 1 / max(math.Sqrt(squares(q)), least)
			for x := range q {
				row[c+at+x] = F(float64(q[x]) * scale)
			}
		}
	}
}

// shareKeysGradient sets dqv (n, 2c) from dqkv and qkv (n, 3c), as kernel.Backend says.
func shareKeysGradient[F Float](dqv, dqkv, qkv []F, n, c, nh int) {
	hs := c / nh
	for i := range n {
		copy(dqv[i*2*c+c:][:c], dqkv[i*3*c+2*c:][:c])
		for at := i * 3 * c; at < i*3*c+c; at += hs {
			q, dq, dk := qkv[at:][:hs], dqkv[at:][:hs], dqkv[at+c:][:hs]
			out := dqv[at-i*c:][:hs]
			length, along := math.Sqrt(squares(q)), 0.0
			if length >= least { // else the key does not depend on the length
				for x := range q {
					along += float64(q[x]) / length * float64(dk[x])
				}
			}
			length = max(length, least)
			for x := range q {
				out[x] = F(float64(dq[x]) + (float64(dk[x])-float64(q[x])/length*along)/length)
			}
		}
	}
}

func squares[F Float](x []F) (sum float64) {
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}
