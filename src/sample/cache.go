package sample

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"dynmo/src/kernel/ref"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// hashing is an extension of a model in which a query sees only the keys of its own bucket.
type hashing interface {
	model.Extension
	// Shares reports whether a token's key is its query over the query's length. Both are in one bucket.
	Shares() bool
	// Projections returns the vectors that assign a block's queries and keys to buckets (see
	// ref.BucketOf), (heads, half of the buckets, head size). It is empty if there is one bucket.
	Projections(c model.Config, block int) []float32
}

// cache has the keys and values of the tokens that a block has computed so far: (heads with keys,
// positions, head size). So the keys of a head are adjacent.
type cache struct {
	keys, values []float32
	n            int // tokens

	projections []float32 // of all heads; empty: a query sees all keys
	shared      bool      // a key is in the bucket of its token's query
	buckets     []int32   // of the keys, (heads, positions)
}

// newCache returns a block's cache for a number of positions.
func newCache(c model.Config, block, positions int) cache {
	size := positions * c.Keyed() * (c.Hidden / c.Heads)
	k := cache{keys: make([]float32, size), values: make([]float32, size)}
	if h := model.KindOf[hashing](c); h != nil {
		k.projections, k.shared, k.buckets = h.Projections(c, block), h.Shares(), make([]int32, positions*c.Heads)
	}
	return k
}

// attend is model.Text.Attend. Rows of a batch may be in another order than their positions. The cache
// has them in the order of positions.
func (s *Session) attend(block int, b *model.Batch, attended, qkv tensor.Mem) {
	c, k := s.m.Config, &s.caches[block]
	at := tensor.Of[int32](b.Positions)
	ascending := slices.Sorted(slices.Values(at))
	slots := make([]int, len(at))
	for i, position := range at {
		slot, _ := slices.BinarySearch(ascending, position)
		slots[i] = k.n + slot
	}
	rows := rows{qkv: tensor.Of[float32](qkv), out: tensor.Of[float32](attended), slots: slots, queries: b.Queries}
	s.m.kernels.team.share(c.Keyed(), 1, func(lo, hi int) {
		for keyed := lo; keyed < hi; keyed++ {
			s.attendHeads(k, keyed, rows)
		}
	})
	k.n += len(at)
}

// rows are those of a batch in one block: queries, keys and values, and the place of each token in the
// cache. The first `queries` tokens are computed.
type rows struct {
	qkv, out []float32
	slots    []int
	queries  int
}

// attendHeads does attention of the heads that share one head's keys and values. With s_j =
// q·k_j/sqrt(size) over the tokens up to itself, the output is the mean of the values weighted by
// softmax(s). Where keys have buckets, j runs over the keys of the query's bucket. The output of a
// query that sees no key is 0.
func (s *Session) attendHeads(k *cache, keyed int, r rows) {
	c := s.m.Config
	size, group := c.Hidden/c.Heads, c.Heads/c.Keyed()
	all, first := (c.Heads+2*c.Keyed())*size, keyed*s.positions*size
	for i, slot := range r.slots {
		key := r.qkv[i*all+(c.Heads+keyed)*size:]
		copy(k.keys[first+slot*size:][:size], key)
		copy(k.values[first+slot*size:][:size], key[c.Keyed()*size:])
		if len(k.projections) > 0 {
			if k.shared {
				key = r.qkv[i*all+keyed*size:]
			}
			k.buckets[keyed*s.positions+slot] = k.bucket(key[:size], keyed, c.Heads)
		}
	}
	scores := make([]float32, k.n+len(r.slots))
	for i, slot := range r.slots[:r.queries] {
		p := scores[:slot+1]
		matrix := func(data []float32) blas32.General {
			return blas32.General{Rows: len(p), Cols: size, Stride: size, Data: data[first:][:len(p)*size]}
		}
		for head := keyed * group; head < (keyed+1)*group; head++ {
			query := r.qkv[i*all+head*size:][:size]
			blas32.Gemv(blas.NoTrans, float32(1/math.Sqrt(float64(size))), matrix(k.keys), vector(query), 0, vector(p))
			if len(k.projections) > 0 {
				own := k.bucket(query, head, c.Heads)
				for j, bucket := range k.buckets[head*s.positions:][:len(p)] {
					if bucket != own {
						p[j] = float32(math.Inf(-1))
					}
				}
			}
			softmax(p)
			blas32.Gemv(blas.Trans, 1, matrix(k.values), vector(p), 0, vector(r.out[i*c.Hidden+head*size:][:size]))
		}
	}
}

// bucket returns the bucket of x, a query or key of a head.
func (k *cache) bucket(x []float32, head, heads int) int32 {
	each := len(k.projections) / heads
	return int32(ref.BucketOf(x, k.projections[head*each:][:each]))
}

// softmax replaces scores by their softmax. It is 0 if all scores are -Inf.
func softmax(scores []float32) {
	largest := slices.Max(scores)
	if math.IsInf(float64(largest), -1) {
		clear(scores)
		return
	}
	sum := 0.0
	for i, v := range scores {
		e := math.Exp(float64(v - largest))
		scores[i] = float32(e)
		sum += e
	}
	blas32.Scal(float32(1/sum), vector(scores))
}
