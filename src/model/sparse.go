package model

import (
	"dynmo/src/kernel"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// buckets are where an attention's queries look for keys (Pagliardini et al. 2023): the
// queries and keys of every head are hashed by random projections, drawn by seed and block
// and the same in every step, and a query sees the keys of its own bucket. So work depends
// on how a layer's queries and keys lie, and differs by layer and step.
//
// Departs: the projections have signs for normal numbers (Achlioptas 2003), which makes
// them a few words that every kernel draws again.
type buckets struct {
	count int
	key   uint64 // of the projections
}

// streamProjections keeps the key apart from those of weights, which go on with a name's hash.
const streamProjections = 1

// newBuckets returns nil where attention is dense.
func newBuckets(c Config, block int) *buckets {
	if c.Buckets == 0 {
		return nil
	}
	return &buckets{c.Buckets, random.Keyed(c.Seed, uint64(block+1), streamProjections).Uint64()}
}

// hashed is what forward knows of the buckets; absent of dense attention.
type hashed struct{ order, starts, pairs tensor.Mem }

func (a *buckets) saved(x *Exec, c *Cutter, heads int) hashed {
	if a == nil {
		return hashed{}
	}
	return hashed{
		order: c.Rows(2*heads, tensor.I32), starts: c.Take(x.B*heads*2*(a.count+1), tensor.I32), pairs: c.Take(2, tensor.F64),
	}
}

// Pairs is the name of a reading of two values: pairs of a query and a key that have a
// score, and those that dense attention scores.
const Pairs = "pairs"

func (a *buckets) Readings() []Reading {
	if a == nil {
		return nil
	}
	return []Reading{{Name: Pairs, Values: 2}}
}

func (a *buckets) of(b *Batch, h hashed, heads int) kernel.Buckets {
	starts := int64(b.Sequences*heads*2*(a.count+1)) * tensor.I32.Size()
	return kernel.Buckets{Count: a.count, Order: h.order, Starts: h.starts.Span(0, starts)}
}

func (a *buckets) Forward(x *Exec, b *Batch, s attentionSaved, hidden, heads int) {
	h := a.of(b, s.hashed, heads)
	x.Backend.AttentionHash(x.Stream, h, s.pairs, s.qkv, b.Offsets, a.key, b.Sequences, b.Longest, b.Tokens, hidden, heads)
	x.Backend.SparseAttentionForward(x.Stream, s.attended, s.lse, s.qkv, b.Offsets, h, b.Sequences, b.Longest, b.Tokens, hidden, heads)
}

func (a *buckets) backward(x *Exec, b *Batch, s attentionSaved, dqkv, dattended tensor.Mem, hidden, heads int) {
	x.Backend.SparseAttentionBackward(x.Stream, dqkv, dattended, s.qkv, s.attended, s.lse, b.Offsets, a.of(b, s.hashed, heads), b.Sequences, b.Longest,
		b.Tokens, hidden, heads)
}
