package model

import (
	"slices"

	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// Inner is the batch that parts inside a layer that routes tokens work on: some of those
// that enter it, none or all; and its memory. It has no Index: which tokens they are the
// device knows.
type Inner struct {
	Batch
	x            *Exec
	routed       *routed
	entered      Batch
	origin       *Batch     // that the layer was entered by
	memory, host tensor.Mem // BatchBytes: Positions and Offsets, at capacity; of the host, Offsets
}

// NewInner returns the batch inside a layer that routes, in BatchBytes of memory of the
// device and InnerBytes of the host.
func NewInner(x *Exec, l *Layer, memory, host tensor.Mem) *Inner {
	r := l.parts[slices.IndexFunc(l.parts, routes)].(*routed)
	return &Inner{x: x, routed: r, memory: memory, host: host}
}

// InnerBytes returns the memory of the host of an Inner.
func (x *Exec) InnerBytes() int64 { return int64(x.B+1) * tensor.I32.Size() }

// From returns b as it enters a layer that routes tokens of it to in: as many of every
// sequence as are first, unless a predictor decides, for which a forward sets how many.
func (in *Inner) From(b *Batch) *Batch {
	in.origin, in.entered = b, *b
	in.entered.Inner = in
	if r := in.routed; !r.Predictor {
		in.set(func(sequence int) int { return kernel.First(r.Capacity, b.tokensOf(in.x, sequence)) })
	}
	return &in.entered
}

// positions returns memory of the device for the Positions of so many tokens.
func (in *Inner) positions(tokens int) tensor.Mem {
	return in.memory.Span(0, int64(tokens)*tensor.I32.Size())
}

// offsets returns memory of the device for Offsets.
func (in *Inner) offsets() tensor.Mem {
	bytes := in.x.InnerBytes()
	return in.memory.Span(in.memory.Bytes-bytes, bytes)
}

// set makes the batch so many tokens of each sequence. Its Dispatch stays, which is that of
// all microbatches in the same buffer.
func (in *Inner) set(tokensOf func(sequence int) int) {
	in.Batch = Batch{Capacity: in.routed.room(in.x), Sequences: in.entered.Sequences, Offsets: in.offsets(), Dispatch: in.Dispatch}
	for s := range in.Sequences {
		tokens := tokensOf(s)
		in.Tokens, in.Longest = in.Tokens+tokens, max(in.Longest, tokens)
	}
	in.Positions = in.positions(in.Tokens)
}

// read waits for the Offsets that are on the device, and makes the batch by them.
func (in *Inner) read() error {
	in.x.Stream.Copy(in.host, in.offsets())
	if err := in.x.Stream.Sync(); err != nil {
		return err
	}
	offsets := tensor.Of[int32](in.host)
	in.set(func(sequence int) int { return int(offsets[sequence+1] - offsets[sequence]) })
	return nil
}

// Routes reports whether parts of the layer work on another batch than enters it. Then
// that has an Inner.
func (l *Layer) Routes() bool { return slices.ContainsFunc(l.parts, routes) }

func routes(p part) bool {
	_, ok := p.(*routed)
	return ok
}
