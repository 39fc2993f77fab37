package model

import (
	"slices"

	"dynmo/src/tensor"
)

// mlp is the second half of a block:
//
//	out = inp + down(gelu(up(norm(inp))))
type mlp struct {
	basic
	hidden   int
	norm     norm
	up, down linear
}

func newMLP(c Config, block int) *mlp {
	at, d := inBlock(block), c.deviation(block)
	return &mlp{
		hidden: c.Hidden,
		norm:   c.newNorm(at, "norm2"),
		up:     c.newLinear(at, "up", 4*c.Hidden, c.Hidden, d),
		down:   c.newLinear(at, "down", c.Hidden, 4*c.Hidden, c.residual(d)),
	}
}

func (a *mlp) params() []*Param {
	return slices.Concat(a.norm.params(), a.up.params(), a.down.params())
}

func (a *mlp) leaves() Width { return Width{Values: a.hidden} }

type mlpSaved struct{ mean, rstd, normed, up, active, out tensor.Mem }

func (a *mlp) saved(x *Exec, c *cutter) (s mlpSaved) {
	d, all := x.Backend.DType(), c.tokens
	c.tokens = c.live
	s.mean, s.rstd = a.norm.statistics(x, c)
	s.normed, s.up, s.active = c.rows(a.hidden, d), c.rows(4*a.hidden, d), c.rows(4*a.hidden, d)
	c.tokens = all
	s.out = c.rows(a.hidden, d)
	return s
}

type mlpHeld struct{ dnormed, dup tensor.Mem }

func (a *mlp) held(x *Exec, c *cutter) mlpHeld {
	d := x.Backend.DType()
	c.tokens = c.live
	return mlpHeld{dnormed: c.rows(a.hidden, d), dup: c.rows(4*a.hidden, d)}
}

func (a *mlp) memory(x *Exec, b *Batch, saved, held tensor.Mem) (tensor.Mem, int64, int64) {
	cs, ch := x.cut(b, saved), x.cut(b, held)
	s := a.saved(x, cs)
	a.held(x, ch)
	return s.out, cs.off, ch.off
}

func (a *mlp) forward(x *Exec, b *Batch, saved, inp tensor.Mem) error {
	s, n := a.saved(x, x.cut(b, saved)), b.live()
	b.carry(x, s.out, inp)
	inp = b.computed(inp)
	a.norm.forward(x, n, s.normed, s.mean, s.rstd, inp)
	a.up.forwardGELU(x, n, s.active, s.up, s.normed)
	a.down.forwardAdd(x, n, b.computed(s.out), s.active, inp)
	return nil
}

func (a *mlp) backwardInput(x *Exec, b *Batch, saved, held, inp, dout, din tensor.Mem) error {
	s, h, n := a.saved(x, x.cut(b, saved)), a.held(x, x.cut(b, held)), b.live()
	b.carry(x, din, dout)
	dout = b.computed(dout)
	a.down.backwardGELU(x, n, h.dup, dout, s.up)
	a.up.backwardInput(x, n, h.dnormed, h.dup)
	a.norm.backwardInputTo(x, n, b.computed(din), dout, h.dnormed, b.computed(inp), s.mean, s.rstd)
	return nil
}

func (a *mlp) backwardWeight(x *Exec, b *Batch, saved, held, inp, dout tensor.Mem) error {
	s, h, n := a.saved(x, x.cut(b, saved)), a.held(x, x.cut(b, held)), b.live()
	a.down.backwardWeight(x, n, b.computed(dout), s.active)
	a.up.backwardWeight(x, n, h.dup, s.normed)
	a.norm.backwardWeight(x, n, h.dnormed, b.computed(inp), s.mean, s.rstd)
	return nil
}
