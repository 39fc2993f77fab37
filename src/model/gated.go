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
	basic
	hidden, inside int
	norm           norm
	gateup, down   linear // (2·inside, C), the rows of gate first; (C, inside)
}

func newGated(c Config, block int) *gated {
	at, d := inBlock(block), c.deviation(block)
	return &gated{
		hidden: c.Hidden, inside: c.Intermediate,
		norm:   c.newNorm(at, "norm2"),
		gateup: c.newLinear(at, "gateup", 2*c.Intermediate, c.Hidden, d),
		down:   c.newLinear(at, "down", c.Hidden, c.Intermediate, c.residual(d)),
	}
}

func (g *gated) params() []*Param {
	return slices.Concat(g.norm.params(), g.gateup.params(), g.down.params())
}

func (g *gated) leaves() Width { return Width{Values: g.hidden} }

type gatedSaved struct{ mean, rstd, normed, gateup, active, out tensor.Mem }

func (g *gated) saved(x *Exec, c *cutter) (s gatedSaved) {
	d, all := x.Backend.DType(), c.tokens
	c.tokens = c.live
	s.mean, s.rstd = g.norm.statistics(x, c)
	s.normed, s.gateup, s.active = c.rows(g.hidden, d), c.rows(2*g.inside, d), c.rows(g.inside, d)
	c.tokens = all
	s.out = c.rows(g.hidden, d)
	return s
}

type gatedHeld struct{ dnormed, dgateup tensor.Mem }

func (g *gated) held(x *Exec, c *cutter) gatedHeld {
	d := x.Backend.DType()
	c.tokens = c.live
	return gatedHeld{dnormed: c.rows(g.hidden, d), dgateup: c.rows(2*g.inside, d)}
}

func (g *gated) memory(x *Exec, b *Batch, saved, held tensor.Mem) (tensor.Mem, int64, int64) {
	cs, ch := x.cut(b, saved), x.cut(b, held)
	s := g.saved(x, cs)
	g.held(x, ch)
	return s.out, cs.off, ch.off
}

func (g *gated) forward(x *Exec, b *Batch, saved, inp tensor.Mem) error {
	s, n := g.saved(x, x.cut(b, saved)), b.live()
	b.carry(x, s.out, inp)
	inp = b.computed(inp)
	g.norm.forward(x, n, s.normed, s.mean, s.rstd, inp)
	g.gateup.forward(x, n, s.gateup, s.normed)
	x.Backend.SwiGLUForward(x.Stream, s.active, s.gateup, n, g.inside)
	g.down.forwardAdd(x, n, b.computed(s.out), s.active, inp)
	return nil
}

func (g *gated) backwardInput(x *Exec, b *Batch, saved, held, inp, dout, din tensor.Mem) error {
	s, h, n := g.saved(x, x.cut(b, saved)), g.held(x, x.cut(b, held)), b.live()
	b.carry(x, din, dout)
	dout = b.computed(dout)
	dactive := x.scratch.Span(0, s.active.Bytes)
	g.down.backwardInput(x, n, dactive, dout)
	x.Backend.SwiGLUBackward(x.Stream, h.dgateup, dactive, s.gateup, n, g.inside)
	g.gateup.backwardInput(x, n, h.dnormed, h.dgateup)
	g.norm.backwardInputTo(x, n, b.computed(din), dout, h.dnormed, b.computed(inp), s.mean, s.rstd)
	return nil
}

func (g *gated) backwardWeight(x *Exec, b *Batch, saved, held, inp, dout tensor.Mem) error {
	s, h, n := g.saved(x, x.cut(b, saved)), g.held(x, x.cut(b, held)), b.live()
	g.down.backwardWeight(x, n, b.computed(dout), s.active)
	g.gateup.backwardWeight(x, n, h.dgateup, s.normed)
	g.norm.backwardWeight(x, n, h.dnormed, b.computed(inp), s.mean, s.rstd)
	return nil
}
