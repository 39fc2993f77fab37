package model

import (
	"slices"

	"dynmo/src/tensor"
)

// feedForward is the second half of a block, an MLP with GELU as GPT-2 has it or a gated one,
// SwiGLU (Shazeer 2020):
//
//	out = inp + down(gelu(up(norm(inp))))
//	out = inp + down(silu(gate)·up)          gate, up = up(norm(inp)): the rows of gate first
type feedForward struct {
	Basic
	hidden, inside int
	gated          bool
	norm           Norm
	up, down       Linear // (inside, C), or (2·inside, C) of a gated one; (C, inside)
}

// newFeedForward returns the MLP of a block: gated where the shape says how wide it is.
func newFeedForward(c Config, block int) *feedForward {
	f := &feedForward{hidden: c.Hidden, inside: 4 * c.Hidden}
	name := "up"
	if f.gated = c.Intermediate > 0; f.gated {
		f.inside, name = c.Intermediate, "gateup"
	}
	at, d := InBlock(block), c.Deviation(block)
	f.norm = c.NewNorm(at, "norm2")
	f.up = c.NewLinear(at, name, f.widened(), c.Hidden, d)
	f.down = c.NewLinear(at, "down", c.Hidden, f.inside, c.Residual(d))
	return f
}

// widened returns what each token has between the two matrices, before the activation.
func (f *feedForward) widened() int {
	if f.gated {
		return 2 * f.inside
	}
	return f.inside
}

func (f *feedForward) Params() []*Param {
	return slices.Concat(f.norm.Params(), f.up.Params(), f.down.Params())
}

func (f *feedForward) Leaves() Width { return Width{Values: f.hidden} }

type feedForwardSaved struct{ mean, rstd, normed, up, active, out tensor.Mem }

func (f *feedForward) saved(x *Exec, c *Cutter) (s feedForwardSaved) {
	d, all := x.Backend.DType(), c.Tokens
	c.Tokens = c.Queries
	s.mean, s.rstd = f.norm.Statistics(x, c)
	s.normed, s.up, s.active = c.Rows(f.hidden, d), c.Rows(f.widened(), d), c.Rows(f.inside, d)
	c.Tokens = all
	s.out = c.Rows(f.hidden, d)
	return s
}

type feedForwardHeld struct{ dnormed, dup tensor.Mem }

func (f *feedForward) held(x *Exec, c *Cutter) feedForwardHeld {
	d := x.Backend.DType()
	c.Tokens = c.Queries
	return feedForwardHeld{dnormed: c.Rows(f.hidden, d), dup: c.Rows(f.widened(), d)}
}

func (f *feedForward) Memory(x *Exec, b *Batch, saved, held tensor.Mem) (tensor.Mem, int64, int64) {
	cs, ch := x.Cut(b, saved), x.Cut(b, held)
	s := f.saved(x, cs)
	f.held(x, ch)
	return s.out, cs.Off, ch.Off
}

func (f *feedForward) Forward(x *Exec, b *Batch, saved, inp tensor.Mem) error {
	s, n := f.saved(x, x.Cut(b, saved)), b.Queries
	b.Carry(x, s.out, inp)
	inp = b.QueryRows(inp)
	f.norm.Forward(x, n, s.normed, s.mean, s.rstd, inp)
	if f.gated {
		f.up.Forward(x, n, s.up, s.normed)
		x.Backend.SwiGLUForward(x.Stream, s.active, s.up, n, f.inside)
	} else {
		f.up.ForwardGELU(x, n, s.active, s.up, s.normed)
	}
	f.down.ForwardAdd(x, n, b.QueryRows(s.out), s.active, inp)
	return nil
}

func (f *feedForward) BackwardInput(x *Exec, b *Batch, saved, held, inp, dout, din tensor.Mem) error {
	s, h, n := f.saved(x, x.Cut(b, saved)), f.held(x, x.Cut(b, held)), b.Queries
	b.Carry(x, din, dout)
	dout = b.QueryRows(dout)
	if f.gated {
		dactive := x.Scratch.Span(0, s.active.Bytes)
		f.down.BackwardInput(x, n, dactive, dout)
		x.Backend.SwiGLUBackward(x.Stream, h.dup, dactive, s.up, n, f.inside)
	} else {
		f.down.BackwardGELU(x, n, h.dup, dout, s.up)
	}
	f.up.BackwardInput(x, n, h.dnormed, h.dup)
	f.norm.BackwardInputTo(x, n, b.QueryRows(din), dout, h.dnormed, b.QueryRows(inp), s.mean, s.rstd)
	return nil
}

func (f *feedForward) BackwardWeight(x *Exec, b *Batch, saved, held, inp, dout tensor.Mem) error {
	s, h, n := f.saved(x, x.Cut(b, saved)), f.held(x, x.Cut(b, held)), b.Queries
	f.down.BackwardWeight(x, n, b.QueryRows(dout), s.active)
	f.up.BackwardWeight(x, n, h.dup, s.normed)
	f.norm.BackwardWeight(x, n, h.dnormed, b.QueryRows(inp), s.mean, s.rstd)
	return nil
}
