package model

import (
	"fmt"
	"sort"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// Exec is what a layer computes with: one rank's device, kernels and stream,
// the capacity of a microbatch, and scratch memory.
type Exec struct {
	Device     device.Device
	Backend    kernel.Backend
	Stream     device.Stream
	B, T       int         // sequences in a full microbatch, tokens in a sequence
	Scale      float64     // factor of the loss gradient: 1 / tokens of the global batch
	Replicas   *comm.Group // the replicas of the stage, for parts that exchange messages; set by the pipeline
	Validates  bool        // the forward is for validation: training's random draws are left out
	Stays      bool        // no token leaves at an exit: all have their loss at the last layer
	Repeats    bool        // the forward is the recomputation before a backward: it decides, counts and sends nothing (see Layer.Repeat)
	Step       int         // step of the run that a forward belongs to; keys random draws, with Microbatch
	Microbatch int         // microbatch of a forward, numbered over all replicas
	Full       Batch       // a microbatch of B sequences of T tokens; made by Reserve
	Text       *Text       // that forwards continue; nil in training and validation

	// Exchanging, unless nil, is called with true when a pass begins to wait for other replicas.
	// It is called with false when the wait ends.
	Exchanging func(begin bool)

	Scratch tensor.Mem // scratch memory with a row for each token: any pass of any part overwrites it
	turns   tensor.Mem // of rotary positions, wide: for each the cosines of a head's pairs, then their sines
	batch   tensor.Mem // what Full points into

	heap     Heap           // of what kinds reserve
	reserved map[string]any // by kind

	Propagates bool // batches may contain keys-only tokens (see Batch.Queries)
}

// N returns the tokens of a full microbatch, which buffers have room for.
func (x *Exec) N() int { return x.B * x.T }

// BatchBytes returns the bytes of Full's positions and offsets.
func (x *Exec) BatchBytes() int64 { return int64(x.N()+x.B+1) * tensor.I32.Size() }

// Width is the number of elements per token that a layer passes to the next layer, and gets back as
// a gradient. Values have the backend's type. Statistics are float64: slices of the head pass on
// their softmax's running sums; other layers have none.
type Width struct{ Values, Statistics int }

// Bytes returns the bytes that a number of tokens takes: all values, padded, then all statistics.
func (w Width) Bytes(x *Exec, tokens int) int64 {
	values := int64(tokens*w.Values) * x.Backend.DType().Size()
	if w.Statistics == 0 {
		return values
	}
	return aligned(values) + int64(tokens*w.Statistics)*tensor.F64.Size()
}

// Tokens returns the number of tokens, at most a full microbatch's, whose rows take exactly the
// given bytes; false if no number of tokens does.
func (w Width) Tokens(x *Exec, bytes int64) (tokens int, ok bool) {
	tokens = sort.Search(x.N(), func(n int) bool { return w.Bytes(x, n) >= bytes })
	return tokens, w.Bytes(x, tokens) == bytes
}

// ScratchBytes returns the device memory that the layers of a rank have in common: Scratch, the table
// of rotary positions, and the memory that kinds reserve.
func (x *Exec) ScratchBytes(c Config) int64 {
	var reserved deviceBytes
	for _, e := range c.Kinds.list() {
		e.Reserve(x, c, &reserved)
	}
	return x.rowsBytes(c) + x.turnsBytes(c) + int64(reserved)
}

// rowsBytes returns the memory of a row for each token that a part works on.
func (x *Exec) rowsBytes(c Config) int64 {
	widest := x.N() * max(c.Hidden, c.Intermediate)
	for _, e := range c.Kinds.list() {
		widest = max(widest, e.Scratch(c, x.N()))
	}
	return int64(widest) * x.Backend.DType().Size()
}

// LargestBoundary returns the bytes of the largest layer output of the chain, of a full microbatch.
func (x *Exec) LargestBoundary(c Config) int64 {
	largest := int64(0)
	for _, d := range c.Chain() {
		largest = max(largest, d.Leaves().Bytes(x, x.N()))
	}
	return largest
}

// Reserve allocates scratch memory for layers of this model, and makes Full. Call it once, before the
// first step.
func (x *Exec) Reserve(c Config) error {
	turns, err := x.Device.Alloc(x.turnsBytes(c))
	if err == nil {
		x.turns = turns
		x.Scratch, err = x.Device.Alloc(x.rowsBytes(c))
	}
	if err == nil {
		err = x.writeTurns(c)
	}
	if err != nil {
		return fmt.Errorf("scratch memory: %w", err)
	}
	x.heap, x.reserved = Heap{Device: x.Device}, make(map[string]any)
	for _, e := range c.Kinds.list() {
		if x.reserved[e.Name()] = e.Reserve(x, c, &x.heap); x.heap.Err != nil {
			return fmt.Errorf("memory of %s: %w", e.Name(), x.heap.Err)
		}
	}
	x.Propagates = c.Propagates()
	host := make([]int32, 0, x.N()+x.B+1)
	for i := range x.N() {
		host = append(host, int32(i%x.T))
	}
	for b := range x.B + 1 {
		host = append(host, int32(b*x.T))
	}
	if x.batch, err = x.Device.Alloc(x.BatchBytes()); err != nil {
		return fmt.Errorf("batch: %w", err)
	}
	positions := int64(x.N()) * tensor.I32.Size()
	x.Full = Batch{
		Tokens: x.N(), Queries: x.N(), Capacity: x.N(), Sequences: x.B, Longest: x.T,
		Positions: x.batch.Span(0, positions), Offsets: x.batch.Span(positions, x.batch.Bytes-positions),
	}
	return device.Write(x.Device, x.batch, tensor.From(host))
}

// Reserved returns what Extension.Reserve made for a kind.
func (x *Exec) Reserved(kind string) any { return x.reserved[kind] }

// Close frees what Reserve made.
func (x *Exec) Close() {
	for _, m := range []*tensor.Mem{&x.Scratch, &x.turns, &x.batch} {
		x.Device.Free(*m)
		*m = tensor.Mem{}
	}
	x.heap.Free()
	x.Full = Batch{}
}

// align is the bytes that every span within a slab is aligned to: a cache line.
const align = 64

func aligned(bytes int64) int64 { return (bytes + align - 1) / align * align }

// Cutter cuts a region into aligned spans, in order. Without memory it only
// adds up how much would be needed.
type Cutter struct {
	Mem              tensor.Mem
	Off              int64
	Tokens, Capacity int // of the microbatch that the region is for
	Queries          int // how many of Tokens, the first ones, are computed
}

// Cut returns a cutter of a microbatch's region.
func (x *Exec) Cut(b *Batch, m tensor.Mem) *Cutter {
	return &Cutter{Mem: m, Tokens: b.Tokens, Capacity: b.Capacity, Queries: b.Queries}
}

// Rows takes memory for width elements per token at capacity. It returns the first Tokens rows.
func (c *Cutter) Rows(width int, d tensor.DType) tensor.Mem {
	row := int64(width) * d.Size()
	return c.Bytes(int64(c.Capacity)*row, int64(c.Tokens)*row)
}

// Boundary takes memory for the output of a part or layer whose width is w.
func (c *Cutter) Boundary(x *Exec, w Width) tensor.Mem {
	return c.Bytes(w.Bytes(x, c.Capacity), w.Bytes(x, c.Tokens))
}

// Take takes memory for a number of elements and returns all of it.
func (c *Cutter) Take(elements int, d tensor.DType) tensor.Mem {
	bytes := int64(elements) * d.Size()
	return c.Bytes(bytes, bytes)
}

// Bytes takes `room` bytes of memory and returns the first `bytes` of them; absent memory if the
// cutter only adds up.
func (c *Cutter) Bytes(room, bytes int64) tensor.Mem {
	off := c.Off
	c.Off += aligned(room)
	if c.Mem.IsZero() || room == 0 {
		return tensor.Mem{}
	}
	return c.Mem.Span(off, bytes)
}
