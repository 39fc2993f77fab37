package model

import (
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// Tokens that left at an exit may go on as states (Schuster et al. 2022, section 3.5).
// They follow the others in the batch, as they were when they left: later blocks compute
// norm, keys and values of them and nothing else, the others attend to these, and gradients
// flow back through them. The last block lets them go, and an exit too at which no other
// token goes on.
//
// Rows of a batch with such tokens, keys-only tokens, are not in the order of sequences. Its attention
// gathers queries, keys and values of all, which are in that order again, and is attention
// within two buckets: the first has all keys, and queries of the tokens that are computed.

// placeOf returns where in the full microbatch an element of an Index says that a token is.
func placeOf(at int32) int32 {
	if at < 0 {
		return ^at
	}
	return at
}

// QueryRows returns the rows of the tokens of memory that are computed. It is absent if memory is.
func (b *Batch) QueryRows(m tensor.Mem) tensor.Mem {
	if b.Queries == b.Tokens {
		return m
	}
	return b.RowsFrom(m, 0, b.Queries)
}

// KeyRows returns the rows of keys-only tokens.
func (b *Batch) KeyRows(m tensor.Mem) tensor.Mem { return b.RowsFrom(m, b.Queries, b.KeysOnly()) }

// RowsFrom returns the rows of count tokens from first on.
func (b *Batch) RowsFrom(m tensor.Mem, first, count int) tensor.Mem {
	if m.IsZero() {
		return m
	}
	return RowsOf(m, b.Tokens, first, count)
}

// Carry copies the rows of keys-only tokens, unless dst is absent.
func (b *Batch) Carry(x *Exec, dst, src tensor.Mem) {
	if b.Queries < b.Tokens && !dst.IsZero() {
		x.Stream.Copy(b.KeyRows(dst), b.KeyRows(src))
	}
}

// marks is the lists of a batch with keys-only tokens, on the host.
type marks struct {
	made bool
	all  []int32
}

// lists is what attention of a batch with keys-only tokens gathers by, I32, in one piece.
// Rows are of C values: a token has three in qkv.
type lists struct {
	all           tensor.Mem
	order, starts tensor.Mem // see kernel.Buckets
	spread        tensor.Mem // by row of qkv: its row of joined; any for the query of a keys-only token
	join          tensor.Mem // by row of joined: its row of qkv
	places        tensor.Mem // by token that is computed: where it is in the full microbatch
	backs         tensor.Mem // by token of the full microbatch: where it is in the batch; 0 of keys-only tokens
}

// keysOnlyBuckets is the number of buckets of attention where tokens are keys-only.
const keysOnlyBuckets = 2

// startsOf returns the elements of lists' starts.
func startsOf(sequences, heads int) int { return sequences * heads * 2 * (keysOnlyBuckets + 1) }

// roomForLists returns the elements of a full microbatch's lists, however many are keys-only.
func roomForLists(x *Exec, heads int) int { return (2*heads+8)*x.N() + startsOf(x.B, heads) }

// lists cuts memory of roomForLists.
func (b *Batch) lists(all tensor.Mem, heads int) (l lists) {
	joined := 3*b.Queries + 2*b.KeysOnly()
	for _, part := range []struct {
		mem      *tensor.Mem
		elements int
	}{
		{&l.order, 2 * heads * b.Tokens}, {&l.starts, startsOf(b.Sequences, heads)}, {&l.spread, 3 * b.Tokens}, {&l.join, joined},
		{&l.places, b.Queries}, {&l.backs, b.Tokens},
	} {
		bytes := int64(part.elements) * tensor.I32.Size()
		*part.mem = all.Span(l.all.Bytes, bytes)
		l.all = all.Span(0, l.all.Bytes+bytes)
	}
	return l
}

// listed returns the lists of a batch with keys-only tokens, in memory of the device, to
// which it copies them.
func (b *Batch) listed(x *Exec, memory tensor.Mem, heads int) lists {
	s := b.subset
	if s.marks.all == nil {
		s.marks.all = make([]int32, roomForLists(x, heads))
	}
	host := b.lists(tensor.From(s.marks.all), heads)
	if !s.marks.made {
		b.list(x, host, heads)
		s.marks.made = true
	}
	l := b.lists(memory, heads)
	x.Stream.Copy(l.all, host.all)
	s.copied = x.Stream.Record(s.copied)
	return l
}

// list makes the lists on the host.
func (b *Batch) list(x *Exec, l lists, heads int) {
	spread, join := tensor.Of[int32](l.spread), tensor.Of[int32](l.join)
	places, backs := tensor.Of[int32](l.places), tensor.Of[int32](l.backs)
	live := int32(b.Queries)
	for i := range live {
		at := b.At(int(i))
		places[i], backs[at] = at, i
		for k := range int32(3) {
			spread[3*at+k], join[3*i+k] = 3*i+k, 3*at+k
		}
	}
	for i := range int32(b.KeysOnly()) {
		at, row := b.At(int(live+i)), 3*live+2*i
		backs[at] = 0
		spread[3*at], spread[3*at+1], spread[3*at+2] = row, row, row+1
		join[row], join[row+1] = 3*at+1, 3*at+2
	}
	order, starts := tensor.Of[int32](l.order), tensor.Of[int32](l.starts)
	for first := 0; first < b.Tokens; first += x.T {
		queries, keys := order[:x.T], order[x.T:2*x.T]
		computed := 0
		for at := range keys {
			keys[at] = int32(at)
			if spread[3*(first+at)] < 3*live {
				queries[computed] = int32(at)
				computed++
			}
		}
		others := queries[computed:]
		for at := range keys {
			if spread[3*(first+at)] >= 3*live {
				others[0], others = int32(at), others[1:]
			}
		}
		for head := range heads {
			copy(order[2*x.T*head:], order[:2*x.T])
			copy(starts[6*head:], []int32{0, int32(computed), int32(x.T), 0, int32(x.T), int32(x.T)})
		}
		order, starts = order[2*x.T*heads:], starts[6*heads:]
	}
}

// keysAndValues is the rows of qkv that keys-only tokens need.
func (a *attention) keysAndValues() Linear { return a.qkv.from(a.hidden) }

// joined is queries, keys and values of the tokens that are computed, then keys and values
// of keys-only tokens, or their gradients, in memory of qkv.
func (a *attention) joined(b *Batch, qkv tensor.Mem) (all, computed, keysOnly tensor.Mem) {
	row := qkv.Bytes / int64(3*b.Tokens)
	computed = qkv.Span(0, int64(3*b.Queries)*row)
	keysOnly = qkv.Span(computed.Bytes, int64(2*b.KeysOnly())*row)
	return qkv.Span(0, computed.Bytes+keysOnly.Bytes), computed, keysOnly
}

// forwardKeysOnly is forward of a batch with keys-only tokens. It leaves in joined what was
// attended, of the tokens that are computed.
func (a *attention) forwardKeysOnly(x *Exec, b *Batch, s attentionSaved, inp tensor.Mem) {
	n, live, l := b.Tokens, b.Queries, b.listed(x, s.lists, a.heads)
	a.norm.Forward(x, n, s.normed, s.mean, s.rstd, inp)
	joined, computed, keysOnly := a.joined(b, s.joined)
	a.qkv.Forward(x, live, computed, b.QueryRows(s.normed))
	a.keysAndValues().Forward(x, b.KeysOnly(), keysOnly, b.KeyRows(s.normed))
	x.Backend.GatherRows(x.Stream, s.qkv, joined, l.spread, tensor.Mem{}, 3*n, a.hidden)
	a.turn(x, &x.Full, s.qkv, false)
	x.Backend.SparseAttentionForward(x.Stream, s.attended, s.lse, s.qkv, b.Offsets, l.buckets(), b.Sequences, b.Longest, n, a.hidden, a.heads)
	attended := b.QueryRows(s.joined.Span(0, s.attended.Bytes))
	x.Backend.GatherRows(x.Stream, attended, s.attended, l.places, tensor.Mem{}, live, a.hidden)
	a.proj.ForwardAdd(x, live, b.QueryRows(s.out), attended, b.QueryRows(inp))
	b.Carry(x, s.out, inp)
}

// buckets returns those of attention.
func (l lists) buckets() kernel.Buckets {
	return kernel.Buckets{Count: keysOnlyBuckets, Order: l.order, Starts: l.starts}
}

// backwardInputKeysOnly is backwardInput of such a batch. It leaves in qkv the gradient of
// joined. A keys-only token's query sees no key, so that what is gathered as the gradient of
// its output does not matter.
func (a *attention) backwardInputKeysOnly(x *Exec, b *Batch, s attentionSaved, h attentionHeld, inp, dout, din tensor.Mem) {
	n, live, l := b.Tokens, b.Queries, b.lists(s.lists, a.heads)
	dcomputed, dattended := b.QueryRows(h.dnormed), x.Scratch.Span(0, s.attended.Bytes)
	a.proj.BackwardInput(x, live, dcomputed, b.QueryRows(dout))
	x.Backend.GatherRows(x.Stream, dattended, dcomputed, l.backs, tensor.Mem{}, n, a.hidden)
	x.Backend.SparseAttentionBackward(x.Stream, h.dqkv, dattended, s.qkv, s.attended, s.lse, b.Offsets, l.buckets(), b.Sequences, b.Longest, n, a.hidden, a.heads)
	a.turn(x, &x.Full, h.dqkv, true)
	joined, computed, keysOnly := a.joined(b, s.qkv)
	x.Backend.GatherRows(x.Stream, joined, h.dqkv, l.join, tensor.Mem{}, 3*live+2*b.KeysOnly(), a.hidden)
	a.qkv.BackwardInput(x, live, b.QueryRows(h.dnormed), computed)
	a.keysAndValues().BackwardInput(x, b.KeysOnly(), b.KeyRows(h.dnormed), keysOnly)
	a.norm.BackwardInputTo(x, n, din, dout, h.dnormed, inp, s.mean, s.rstd)
}

// backwardWeightKeysOnly is backwardWeight of such a batch.
func (a *attention) backwardWeightKeysOnly(x *Exec, b *Batch, s attentionSaved, h attentionHeld, inp, dout tensor.Mem) {
	_, computed, keysOnly := a.joined(b, s.qkv)
	a.proj.BackwardWeight(x, b.Queries, b.QueryRows(dout), b.QueryRows(s.joined.Span(0, s.attended.Bytes)))
	a.qkv.BackwardWeight(x, b.Queries, computed, b.QueryRows(s.normed))
	a.keysAndValues().BackwardWeight(x, b.KeysOnly(), keysOnly, b.KeyRows(s.normed))
	a.norm.BackwardWeight(x, b.Tokens, h.dnormed, inp, s.mean, s.rstd)
}
