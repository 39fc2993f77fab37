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
// Where heads share keys and values each head gets a copy, and gradients of copies add up.

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

// pieces describes the rows in which attention gathers a batch with keys-only tokens. queries and
// keys are a token's rows of queries, and of keys or values; width is the elements of a row. Where
// heads share keys and values, a row is one head's channels. Otherwise a token has one row of C
// channels for each.
type pieces struct{ queries, keys, width int }

func (a *attention) pieces() pieces {
	if a.keyed == a.heads {
		return pieces{1, 1, a.hidden}
	}
	return pieces{a.heads, a.keyed, a.hidden / a.heads}
}

// of returns the rows of a token's queries, keys and values.
func (p pieces) of() int { return p.queries + 2*p.keys }

// copies returns how many heads have the same keys and values.
func (p pieces) copies() int { return p.queries / p.keys }

// lists is what attention of a batch with keys-only tokens gathers by, I32, in one piece.
type lists struct {
	all           tensor.Mem
	order, starts tensor.Mem // see kernel.Buckets
	spread        tensor.Mem // by row of queries, keys and values of all heads: its row of joined; any for the query of a keys-only token
	join          tensor.Mem // by row of joined, and by copy: its row of these; -1 where there is none
	places        tensor.Mem // by token that is computed: where it is in the full microbatch
	backs         tensor.Mem // by token of the full microbatch: where it is in the batch; 0 of keys-only tokens
}

// keysOnlyBuckets is the number of buckets of attention where tokens are keys-only.
const keysOnlyBuckets = 2

// startsOf returns the elements of lists' starts.
func startsOf(sequences, heads int) int { return sequences * heads * 2 * (keysOnlyBuckets + 1) }

// roomForLists returns the elements of a full microbatch's lists, however many are keys-only.
func roomForLists(x *Exec, heads int, p pieces) int {
	return (2*heads+3*p.queries+p.of()*p.copies()+2)*x.N() + startsOf(x.B, heads)
}

// lists cuts memory of roomForLists.
func (b *Batch) lists(all tensor.Mem, heads int, p pieces) (l lists) {
	for _, part := range []struct {
		mem      *tensor.Mem
		elements int
	}{
		{&l.order, 2 * heads * b.Tokens}, {&l.starts, startsOf(b.Sequences, heads)}, {&l.spread, 3 * p.queries * b.Tokens}, {&l.join, b.joinedRows(p) * p.copies()},
		{&l.places, b.Queries}, {&l.backs, b.Tokens},
	} {
		bytes := int64(part.elements) * tensor.I32.Size()
		*part.mem = all.Span(l.all.Bytes, bytes)
		l.all = all.Span(0, l.all.Bytes+bytes)
	}
	return l
}

// joinedRows returns the rows of queries, keys and values of the tokens that are computed, and of
// keys and values of keys-only tokens.
func (b *Batch) joinedRows(p pieces) int { return p.of()*b.Queries + 2*p.keys*b.KeysOnly() }

// listed returns the lists of a batch with keys-only tokens, in memory of the device, to
// which it copies them.
func (b *Batch) listed(x *Exec, memory tensor.Mem, heads int, p pieces) lists {
	s := b.subset
	if s.marks.all == nil {
		s.marks.all = make([]int32, roomForLists(x, heads, p))
	}
	host := b.lists(tensor.From(s.marks.all), heads, p)
	if !s.marks.made {
		b.list(x, host, heads, p)
		s.marks.made = true
	}
	l := b.lists(memory, heads, p)
	x.Stream.Copy(l.all, host.all)
	s.copied = x.Stream.Record(s.copied)
	return l
}

// list makes the lists on the host.
func (b *Batch) list(x *Exec, l lists, heads int, p pieces) {
	spread, join := tensor.Of[int32](l.spread), tensor.Of[int32](l.join)
	places, backs := tensor.Of[int32](l.places), tensor.Of[int32](l.backs)
	queries, keys, copies := int32(p.queries), int32(p.keys), int32(p.copies())
	live := int32(b.Queries) * int32(p.of()) // rows of the tokens that are computed
	for i := range join {
		join[i] = -1
	}
	// both has the keys and values of a token, whose rows of joined begin at row.
	both := func(at, row int32) {
		for side := range int32(2) {
			for head := range queries {
				from, to := row+side*keys+head/copies, (3*at+1+side)*queries+head
				spread[to], join[from*copies+head%copies] = from, to
			}
		}
	}
	for i := range int32(b.Queries) {
		at, row := b.At(int(i)), i*int32(p.of())
		places[i], backs[at] = at, i
		for head := range queries {
			spread[3*at*queries+head], join[(row+head)*copies] = row+head, 3*at*queries+head
		}
		both(at, row+queries)
	}
	for i := range int32(b.KeysOnly()) {
		at, row := b.At(b.Queries+int(i)), live+2*keys*i
		backs[at] = 0
		for head := range queries {
			spread[3*at*queries+head] = row
		}
		both(at, row)
	}
	order, starts := tensor.Of[int32](l.order), tensor.Of[int32](l.starts)
	for first := 0; first < b.Tokens; first += x.T {
		asking, asked := order[:x.T], order[x.T:2*x.T]
		isLive := func(at int) bool { return spread[3*p.queries*(first+at)] < live }
		computed := 0
		for at := range asked {
			asked[at] = int32(at)
			if isLive(at) {
				asking[computed] = int32(at)
				computed++
			}
		}
		others := asking[computed:]
		for at := range asked {
			if !isLive(at) {
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

// joined cuts memory of qkv into all, computed and keysOnly. computed has queries, keys and values
// of the computed tokens, and keysOnly the keys and values of keys-only tokens. It cuts gradients
// alike.
func (a *attention) joined(b *Batch, qkv tensor.Mem) (all, computed, keysOnly tensor.Mem) {
	p := a.pieces()
	row := qkv.Bytes / int64(p.of()*b.Tokens)
	computed = qkv.Span(0, int64(p.of()*b.Queries)*row)
	keysOnly = qkv.Span(computed.Bytes, int64(2*p.keys*b.KeysOnly())*row)
	return qkv.Span(0, computed.Bytes+keysOnly.Bytes), computed, keysOnly
}

// turnAll turns the queries and keys of all heads, of a full microbatch.
func (a *attention) turnAll(x *Exec, all tensor.Mem, back bool) {
	if a.turns {
		x.Backend.Rotary(x.Stream, all, x.Full.Positions, x.turns, x.N(), 2*a.heads, 3*a.hidden, a.hidden/a.heads, back)
	}
}

// forwardKeysOnly is forward of a batch with keys-only tokens. It leaves in joined what was
// attended, of the tokens that are computed.
func (a *attention) forwardKeysOnly(x *Exec, b *Batch, s attentionSaved, inp tensor.Mem) {
	n, live, p := b.Tokens, b.Queries, a.pieces()
	l := b.listed(x, s.lists, a.heads, p)
	a.norm.Forward(x, n, s.normed, s.mean, s.rstd, inp)
	joined, computed, keysOnly := a.joined(b, s.joined.Span(0, s.qkv.Bytes))
	a.qkv.Forward(x, live, computed, b.QueryRows(s.normed))
	a.keysAndValues().Forward(x, b.KeysOnly(), keysOnly, b.KeyRows(s.normed))
	x.Backend.GatherRows(x.Stream, s.all, joined, l.spread, tensor.Mem{}, 3*p.queries*n, p.width)
	a.turnAll(x, s.all, false)
	x.Backend.SparseAttentionForward(x.Stream, s.attended, s.lse, s.all, b.Offsets, l.buckets(), b.Sequences, b.Longest, n, a.hidden, a.heads)
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
	n, live, p := b.Tokens, b.Queries, a.pieces()
	l := b.lists(s.lists, a.heads, p)
	dcomputed, dattended := b.QueryRows(h.dnormed), x.Scratch.Span(0, s.attended.Bytes)
	a.proj.BackwardInput(x, live, dcomputed, b.QueryRows(dout))
	x.Backend.GatherRows(x.Stream, dattended, dcomputed, l.backs, tensor.Mem{}, n, a.hidden)
	x.Backend.SparseAttentionBackward(x.Stream, h.dall, dattended, s.all, s.attended, s.lse, b.Offsets, l.buckets(), b.Sequences, b.Longest, n, a.hidden, a.heads)
	a.turnAll(x, h.dall, true)
	joined, computed, keysOnly := a.joined(b, s.qkv)
	x.Backend.CombineRows(x.Stream, joined, h.dall, l.join, tensor.Mem{}, b.joinedRows(p), p.copies(), p.width)
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
