package model

import (
	"slices"

	"dynmo/src/tensor"
)

// gated is the second half of a block with a gated MLP, SwiGLU (Shazeer 2020):
//
//	gate, up = gateup(norm(inp))
//	out      = inp + down(silu(gate)·up)
type gated struct {
	Basic
	hidden, inside int
	norm           Norm
	gateup, down   Linear // (2·inside, C), the rows of gate first; (C, inside)
}

func newGated(c Config, block int) *gated {
	at, d := InBlock(block), c.Deviation(block)
	return &gated{
		hidden: c.Hidden, inside: c.Intermediate,
		norm:   c.NewNorm(at, "norm2"),
		gateup: c.NewLinear(at, "gateup", 2*c.Intermediate, c.Hidden, d),
		down:   c.NewLinear(at, "down", c.Hidden, c.Intermediate, c.Residual(d)),
	}
}

func (g *gated) Params() []*Param {
	return slices.Concat(g.norm.Params(), g.gateup.Params(), g.down.Params())
}

func (g *gated) Leaves() Width { return Width{Values: g.hidden} }

type gatedSaved struct{ mean, rstd, normed, gateup, active, out tensor.Mem }

func (g *gated) saved(x *Exec, c *Cutter) (s gatedSaved) {
	d, all := x.Backend.DType(), c.Tokens
	c.Tokens = c.Queries
	s.mean, s.rstd = g.norm.Statistics(x, c)
	s.normed, s.gateup, s.active = c.Rows(g.hidden, d), c.Rows(2*g.inside, d), c.Rows(g.inside, d)
	c.Tokens = all
	s.out = c.Rows(g.hidden, d)
	return s
}

type gatedHeld struct{ dnormed, dgateup tensor.Mem }

func (g *gated) held(x *Exec, c *Cutter) gatedHeld {
	d := x.Backend.DType()
	c.Tokens = c.Queries
	return gatedHeld{dnormed: c.Rows(g.hidden, d), dgateup: c.Rows(2*g.inside, d)}
}

func (g *gated) Memory(x *Exec, b *Batch, saved, held tensor.Mem) (tensor.Mem, int64, int64) {
	cs, ch := x.Cut(b, saved), x.Cut(b, held)
	s := g.saved(x, cs)
	g.held(x, ch)
	return s.out, cs.Off, ch.Off
}

func (g *gated) Forward(x *Exec, b *Batch, saved, inp tensor.Mem) error {
	s, n := g.saved(x, x.Cut(b, saved)), b.Queries
	b.Carry(x, s.out, inp)
	inp = b.QueryRows(inp)
	g.norm.Forward(x, n, s.normed, s.mean, s.rstd, inp)
	g.gateup.Forward(x, n, s.gateup, s.normed)
	x.Backend.SwiGLUForward(x.Stream, s.active, s.gateup, n, g.inside)
	g.down.ForwardAdd(x, n, b.QueryRows(s.out), s.active, inp)
	return nil
}

func (g *gated) BackwardInput(x *Exec, b *Batch, saved, held, inp, dout, din tensor.Mem) error {
	s, h, n := g.saved(x, x.Cut(b, saved)), g.held(x, x.Cut(b, held)), b.Queries
	b.Carry(x, din, dout)
	dout = b.QueryRows(dout)
	dactive := x.Scratch.Span(0, s.active.Bytes)
	g.down.BackwardInput(x, n, dactive, dout)
	x.Backend.SwiGLUBackward(x.Stream, h.dgateup, dactive, s.gateup, n, g.inside)
	g.gateup.BackwardInput(x, n, h.dnormed, h.dgateup)
	g.norm.BackwardInputTo(x, n, b.QueryRows(din), dout, h.dnormed, b.QueryRows(inp), s.mean, s.rstd)
	return nil
}

func (g *gated) BackwardWeight(x *Exec, b *Batch, saved, held, inp, dout tensor.Mem) error {
	s, h, n := g.saved(x, x.Cut(b, saved)), g.held(x, x.Cut(b, held)), b.Queries
	g.down.BackwardWeight(x, n, b.QueryRows(dout), s.active)
	g.gateup.BackwardWeight(x, n, h.dgateup, s.normed)
	g.norm.BackwardWeight(x, n, h.dnormed, b.QueryRows(inp), s.mean, s.rstd)
	return nil
}
