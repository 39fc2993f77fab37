package model

import (
	"slices"

	"dynmo/src/tensor"
)

// attention is the first half of a block:
//
//	out = inp + proj(attend(turn(qkv(norm(inp)))))
//
// qkv returns the queries of all heads, then the keys, then the values. Keys and values have as
// many heads as the model's key-value heads. With rotary positions, turn rotates queries and keys
// by position; otherwise turn does nothing. Where keys are shared, qkv is qv and returns queries
// and values only. A key is then its query divided by the query's length (see
// kernel.Backend.ShareKeys).
type attention struct {
	Basic
	hidden, heads int
	block, keyed  int  // number of the block; heads that have keys and values
	turns         bool // positions are rotary
	norm          Norm
	qkv, proj     Linear
	shares        bool   // keys are made of queries
	search        Search // says which keys queries look at; nil: all
	propagates    bool   // of some tokens there may be keys and values alone (see keysonly.go)
}

// Search is a sparse attention: it finds, for every query, the keys that the query attends to, and
// computes attention over these. Its device memory lasts from forward to the backward for weights.
type Search interface {
	// Shares reports whether each key is its query, divided by the query's length.
	Shares() bool
	// Projections returns the vectors that assign queries and keys of a text to buckets (see
	// ref.BucketOf), (heads, half of the buckets, head size); empty if there is one bucket.
	Projections() []float32
	// NewWork returns what the search keeps for a microbatch; nil: nothing.
	NewWork(x *Exec, room Room) Work
	// Memory takes the search's memory from cutter c, and returns the rest of c.
	Memory(x *Exec, c Cutter, heads int) (Searched, Cutter)
	Readings() []Reading
	Reading(m Searched) tensor.Mem
	// Forward sets attended (tokens, hidden) and lse, the logarithm of each softmax's sum (tokens,
	// heads), from qkv.
	Forward(x *Exec, b *Batch, m Searched, attended, lse, qkv tensor.Mem, hidden, heads int)
	// Backward sets dqkv, the gradient of qkv, from dattended.
	Backward(x *Exec, b *Batch, m Searched, dqkv, dattended, qkv, attended, lse tensor.Mem, hidden, heads int)
}

// Searched is the memory of a Search, in up to three spans. Only the Search knows their contents.
type Searched [3]tensor.Mem

// NewAttention returns the first half of a block. search selects keys; nil: every query attends to all
// earlier keys.
func NewAttention(c Config, block int, search Search) Part {
	at, d := InBlock(block), c.Deviation(block)
	a := &attention{
		hidden: c.Hidden, heads: c.Heads, block: block, keyed: c.Keyed(), turns: c.Rope.Turns(),
		norm: c.NewNorm(at, "norm1"),
		proj: c.NewLinear(at, "proj", c.Hidden, c.Hidden, c.Residual(d)),

		shares: search != nil && search.Shares(), search: search, propagates: c.Propagates(),
	}
	if !a.shares {
		a.qkv = c.NewLinear(at, "qkv", a.width(), c.Hidden, d)
		return a
	}
	a.qkv = c.NewLinear(at, "qv", 2*c.Hidden, c.Hidden, d)
	for _, p := range a.qkv.Params() {
		p.File = ""
	}
	return a
}

// Search returns what says which keys the queries look at; nil: they look at all.
func (a *attention) Search() Search { return a.search }

// width returns the channels of a token's queries, keys and values.
func (a *attention) width() int { return (a.heads + 2*a.keyed) * (a.hidden / a.heads) }

// NewWork returns that of the search. A text has none.
func (a *attention) NewWork(x *Exec, room Room) Work {
	if a.search == nil || x.Text != nil {
		return nil
	}
	return a.search.NewWork(x, room)
}

func (a *attention) Params() []*Param {
	return slices.Concat(a.norm.Params(), a.qkv.Params(), a.proj.Params())
}

func (a *attention) Leaves() Width { return Width{Values: a.hidden} }

type attentionSaved struct {
	mean, rstd, normed, qkv, lse, attended, out tensor.Mem
	searched                                    Searched
	joined, lists                               tensor.Mem // see forwardKeysOnly
	all                                         tensor.Mem // queries, keys and values of all heads there; qkv's where none share
}

func (a *attention) saved(x *Exec, c *Cutter) (s attentionSaved) {
	d := x.Backend.DType()
	s.mean, s.rstd = a.norm.Statistics(x, c)
	s.normed, s.qkv, s.lse = c.Rows(a.hidden, d), c.Rows(a.width(), d), c.Rows(a.heads, d.Wide())
	s.attended, s.out = c.Rows(a.hidden, d), c.Rows(a.hidden, d)
	if a.search != nil {
		s.searched, *c = a.search.Memory(x, *c, a.heads)
	}
	if a.propagates {
		s.joined, s.lists, s.all = c.Rows(max(a.width(), a.hidden), d), c.Take(roomForLists(x, a.heads, a.pieces()), tensor.I32), s.qkv
		if a.keyed < a.heads {
			s.all = c.Rows(3*a.hidden, d)
		}
	}
	return s
}

// attentionHeld has in dqkv the gradient of what the linear map makes: of qv where keys are shared.
type attentionHeld struct{ dnormed, dqkv, dall tensor.Mem }

func (a *attention) held(x *Exec, c *Cutter) attentionHeld {
	d := x.Backend.DType()
	h := attentionHeld{dnormed: c.Rows(a.hidden, d), dqkv: c.Rows(a.qkv.Rows(), d)}
	if h.dall = h.dqkv; a.propagates && a.keyed < a.heads {
		h.dall = c.Rows(3*a.hidden, d)
	}
	return h
}

func (a *attention) Readings() []Reading {
	if a.search == nil {
		return nil
	}
	return a.search.Readings()
}

func (a *attention) Reading(x *Exec, b *Batch, saved tensor.Mem, _ int) tensor.Mem {
	return a.search.Reading(a.saved(x, x.Cut(b, saved)).searched)
}

// turn rotates a batch's queries, and its keys where they are not shared, by their positions. With
// back it rotates their gradients back.
func (a *attention) turn(x *Exec, b *Batch, qkv tensor.Mem, back bool) {
	turned := a.heads + a.keyed
	if a.shares {
		turned = a.heads
	}
	if a.turns {
		x.Backend.Rotary(x.Stream, qkv, b.Positions, x.turns, b.Tokens, turned, a.qkv.Rows(), a.hidden/a.heads, back)
	}
}

// SharedScratch returns the elements of scratch memory that attention needs if keys are made of
// queries (Search.Shares). They hold two gradients: of its result, and of queries, keys and values.
func SharedScratch(c Config, tokens int) int { return 4*tokens*c.Hidden + align }

// forwardQKV sets the queries, keys and values of a batch.
func (a *attention) forwardQKV(x *Exec, b *Batch, s attentionSaved) {
	made := s.qkv
	if a.shares {
		made = x.Scratch.Span(0, 2*s.normed.Bytes)
	}
	a.qkv.Forward(x, b.Tokens, made, s.normed)
	a.turn(x, b, made, false)
	if a.shares {
		x.Backend.ShareKeys(x.Stream, s.qkv, made, b.Tokens, a.hidden, a.heads)
	}
}

func (a *attention) Memory(x *Exec, b *Batch, saved, held tensor.Mem) (tensor.Mem, int64, int64) {
	cs, ch := x.Cut(b, saved), x.Cut(b, held)
	s := a.saved(x, cs)
	a.held(x, ch)
	return s.out, cs.Off, ch.Off
}

func (a *attention) Forward(x *Exec, b *Batch, saved, inp tensor.Mem) error {
	s, n := a.saved(x, x.Cut(b, saved)), b.Tokens
	if b.Queries < b.Tokens && x.Text == nil {
		a.forwardKeysOnly(x, b, s, inp)
		return nil
	}
	a.norm.Forward(x, n, s.normed, s.mean, s.rstd, inp)
	a.forwardQKV(x, b, s)
	switch {
	case x.Text != nil:
		a.attendPast(x, b, s.attended, s.qkv)
	case a.search == nil:
		x.Backend.AttentionForward(x.Stream, s.attended, s.lse, s.qkv, b.Offsets, b.Sequences, b.Longest, n, a.hidden, a.heads, a.keyed)
	default:
		a.search.Forward(x, b, s.searched, s.attended, s.lse, s.qkv, a.hidden, a.heads)
	}
	a.proj.ForwardAdd(x, b.Queries, b.QueryRows(s.out), b.QueryRows(s.attended), b.QueryRows(inp))
	b.Carry(x, s.out, inp)
	return nil
}

func (a *attention) BackwardInput(x *Exec, b *Batch, saved, held, inp, dout, din tensor.Mem) error {
	s, h, n := a.saved(x, x.Cut(b, saved)), a.held(x, x.Cut(b, held)), b.Tokens
	if b.Queries < b.Tokens {
		a.backwardInputKeysOnly(x, b, s, h, inp, dout, din)
		return nil
	}
	dattended := x.Scratch.Span(0, s.attended.Bytes)
	a.proj.BackwardInput(x, n, dattended, dout)
	dqkv := h.dqkv
	if a.shares {
		dqkv = x.Scratch.Span(aligned(s.attended.Bytes), s.qkv.Bytes)
	}
	if a.search == nil {
		x.Backend.AttentionBackward(x.Stream, dqkv, dattended, s.qkv, s.attended, s.lse, b.Offsets, b.Sequences, b.Longest, n, a.hidden, a.heads, a.keyed)
	} else {
		a.search.Backward(x, b, s.searched, dqkv, dattended, s.qkv, s.attended, s.lse, a.hidden, a.heads)
	}
	if a.shares {
		x.Backend.ShareKeysGradient(x.Stream, h.dqkv, dqkv, s.qkv, n, a.hidden, a.heads)
	}
	a.turn(x, b, h.dqkv, true)
	a.qkv.BackwardInput(x, n, h.dnormed, h.dqkv)
	a.norm.BackwardInputTo(x, n, din, dout, h.dnormed, inp, s.mean, s.rstd)
	return nil
}

func (a *attention) BackwardWeight(x *Exec, b *Batch, saved, held, inp, dout tensor.Mem) error {
	s, h, n := a.saved(x, x.Cut(b, saved)), a.held(x, x.Cut(b, held)), b.Tokens
	if b.Queries < b.Tokens {
		a.backwardWeightKeysOnly(x, b, s, h, inp, dout)
		return nil
	}
	a.proj.BackwardWeight(x, n, dout, s.attended)
	a.qkv.BackwardWeight(x, n, h.dqkv, s.normed)
	a.norm.BackwardWeight(x, n, h.dnormed, inp, s.mean, s.rstd)
	return nil
}
