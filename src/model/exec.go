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

	scratch tensor.Mem
}

// N returns the tokens of a microbatch.
func (x *Exec) N() int { return x.B * x.T }

// Boundary returns the bytes of what passes between two layers: (n, C).
func (x *Exec) Boundary(c Config) int64 {
	return int64(x.N()*c.Hidden) * x.Backend.DType().Size()
}

// Reserve makes scratch memory for layers of this model. It is called once,
// before the first step.
func (x *Exec) Reserve(c Config) error {
	m, err := x.Device.Alloc(x.Boundary(c))
	if err != nil {
		return fmt.Errorf("scratch memory: %w", err)
	}
	x.scratch = m
	return nil
}

// Close frees the scratch memory.
func (x *Exec) Close() {
	x.Device.Free(x.scratch)
	x.scratch = tensor.Mem{}
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
