package model

import (
	"slices"

	"dynmo/src/tensor"
)

// Inner is the batch that parts inside a layer that routes tokens work on: some of those
// that enter it, none or all; and its memory.
type Inner struct {
	Subset
	origin *Batch     // that the layer was entered by
	host   tensor.Mem // RoutingBytes, where the layer decides
	member []bool     // of the tokens of a batch, whether they are among the first of their sequence
	order  []int32    // the tokens of a sequence
}

// NewInner returns the batch inside a layer that routes, in SubsetBytes of memory of the
// device and of the host, and RoutingBytes of the host.
func NewInner(x *Exec, memory, host, routing tensor.Mem) *Inner {
	return &Inner{Subset: *NewSubset(x, memory, host), host: routing, member: make([]bool, x.N()), order: make([]int32, x.N())}
}

// From returns b as it enters a layer that routes tokens of it to in.
func (in *Inner) From(b *Batch) *Batch {
	in.origin, in.entered = b, *b
	in.entered.Inner = in
	return &in.entered
}

// RoutingBytes returns the memory of the host in which the layer decides which tokens of a
// batch it works on; 0 if it works on all.
func (l *Layer) RoutingBytes(x *Exec) int64 {
	for _, p := range l.parts {
		if r, ok := p.(*routed); ok {
			c := x.cut(&Batch{Tokens: x.N(), Capacity: x.N()}, tensor.Mem{})
			r.onHost(x, c)
			return c.off
		}
	}
	return 0
}

// Routes reports whether parts of the layer work on another batch than enters it. Then
// that has an Inner, which a forward selects.
func (l *Layer) Routes() bool { return slices.ContainsFunc(l.parts, routes) }

func routes(p part) bool {
	_, ok := p.(*routed)
	return ok
}
