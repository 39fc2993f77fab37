package model

import (
	"fmt"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// Exec is what a layer computes with: one rank's device, kernels and stream,
// the shape of a microbatch, and scratch memory.
type Exec struct {
	Device  device.Device
	Backend kernel.Backend
	Stream  device.Stream
	B, T    int     // sequences in a microbatch, tokens in a sequence
	Scale   float64 // of the loss gradient: 1 / tokens of the global batch

	scratch            tensor.Mem
	indices            tensor.Mem // positions, then offsets
	positions, offsets tensor.Mem // I32 (N) and (B+1): B sequences of T tokens
}

// N returns the tokens of a microbatch.
func (x *Exec) N() int { return x.B * x.T }

// Boundary returns the bytes of what passes between a layer of the chain and
// the one before it, forward and backward: (n, C), and the softmax (3, n)
// between two slices of the head. Nothing passes the ends of the chain.
func (x *Exec) Boundary(c Config, layer int) int64 {
	var cut cutter
	switch {
	case layer == 0 || layer == c.Layers():
	case layer > c.Head():
		x.crossing(c.Hidden, &cut)
	default:
		return int64(x.N()*c.Hidden) * x.Backend.DType().Size()
	}
	return cut.off
}

// LargestBoundary returns the bytes of the largest boundary of the chain.
func (x *Exec) LargestBoundary(c Config) int64 {
	return max(x.Boundary(c, 1), x.Boundary(c, c.Layers()-1))
}

// IndexBytes returns the bytes of the positions and offsets that Reserve makes.
func (x *Exec) IndexBytes() int64 { return int64(x.N()+x.B+1) * tensor.I32.Size() }

// Reserve makes scratch memory for layers of this model, and the positions and
// offsets of a microbatch. It is called once, before the first step.
func (x *Exec) Reserve(c Config) error {
	m, err := x.Device.Alloc(int64(x.N()*c.Hidden) * x.Backend.DType().Size())
	if err != nil {
		return fmt.Errorf("scratch memory: %w", err)
	}
	x.scratch = m
	if x.indices, err = x.Device.Alloc(x.IndexBytes()); err != nil {
		return fmt.Errorf("positions and offsets: %w", err)
	}
	at := int64(x.N()) * tensor.I32.Size()
	x.positions, x.offsets = x.indices.Span(0, at), x.indices.Span(at, x.indices.Bytes-at)
	positions, offsets := make([]int32, x.N()), make([]int32, x.B+1)
	for i := range positions {
		positions[i] = int32(i % x.T)
	}
	for i := range offsets {
		offsets[i] = int32(i * x.T)
	}
	x.Stream.Copy(x.positions, tensor.From(positions))
	x.Stream.Copy(x.offsets, tensor.From(offsets))
	return x.Stream.Sync()
}

// Close frees what Reserve made.
func (x *Exec) Close() {
	x.Device.Free(x.scratch)
	x.Device.Free(x.indices)
	x.scratch, x.indices = tensor.Mem{}, tensor.Mem{}
}

// align is the bytes that every span within a slab is aligned to: a cache line.
const align = 64

// cutter cuts a region into aligned spans, in order. Without memory it only
// adds up how much would be needed.
type cutter struct {
	m   tensor.Mem
	off int64
}

func (c *cutter) take(elements int, d tensor.DType) tensor.Mem {
	return c.bytes(int64(elements) * d.Size())
}

func (c *cutter) bytes(bytes int64) tensor.Mem {
	off := c.off
	c.off += (bytes + align - 1) / align * align
	if c.m.IsZero() || bytes == 0 {
		return tensor.Mem{}
	}
	return c.m.Span(off, bytes)
}
