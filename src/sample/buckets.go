package sample

import (
	"math"

	"gonum.org/v1/gonum/blas/blas32"

	"dynmo/src/kernel/ref"
	"dynmo/src/model"
)

// hashing is an extension of a model in which a query sees only the keys of its own bucket.
type hashing interface {
	model.Extension
	// Shares reports whether a token's key is its query over the query's length.
	Shares() bool
	// Projections returns the vectors that assign a block's queries and keys to buckets (see
	// ref.BucketOf), (heads, half of the buckets, head size). It is empty if there is one bucket.
	Projections(c model.Config, block int) []float32
}

// shares reports whether keys are computed from queries.
func (m *Model) shares() bool { return m.hashing != nil && m.hashing.Shares() }

// buckets returns the number of buckets for the keys of a head.
func (m *Model) buckets(b *block) int { return max(1, 2*len(b.projections)/m.Config.Hidden) }

// bucket returns the bucket of x, a query or key of a head. count is the number of buckets.
func (b *block) bucket(x []float32, head, count int) int {
	if count == 1 {
		return 0
	}
	each := len(x) * count / 2
	return ref.BucketOf(x, b.projections[head*each:][:each])
}

// sort assigns the keys of n tokens to buckets, for one head. A key that is computed from a query
// lies in the query's bucket.
func (s *Session) sort(b *block, k *kept, head, n int) {
	c, count := s.m.Config, s.m.buckets(b)
	size, all := s.m.headed()
	at := c.Heads * size
	if s.m.shares() {
		at = 0
	}
	for i := range n {
		of := &k.sorted[head*count+b.bucket(s.qkv[i*all+at+head*size:][:size], head, count)]
		*of = append(*of, int32(k.n+i))
	}
}

// attendWithin is attend for a head whose queries see only the keys of their own bucket. The output
// of a query that sees no key is 0.
func (s *Session) attendWithin(b *block, k *kept, head, n int) {
	c, count := s.m.Config, s.m.buckets(b)
	size, all := s.m.headed()
	of := func(data []float32, token int32) blas32.Vector {
		return vector(data[(head*s.positions+int(token))*size:][:size])
	}
	scores := make([]float32, 0, k.n+n)
	for i := range n {
		query := s.qkv[i*all+head*size:][:size]
		out := s.attended[i*c.Hidden+head*size:][:size]
		clear(out)
		keys, p := k.sorted[head*count+b.bucket(query, head, count)], scores[:0]
		for _, token := range keys {
			if int(token) > k.n+i {
				break
			}
			p = append(p, blas32.Dot(vector(query), of(k.keys, token))/float32(math.Sqrt(float64(size))))
		}
		if len(p) == 0 {
			continue
		}
		softmax(p)
		for j, weight := range p {
			blas32.Axpy(weight, of(k.values, keys[j]), vector(out))
		}
	}
}
