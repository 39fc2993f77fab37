package model

import (
	"slices"

	"dynmo/src/tensor"
)

// mlp is the second half of a block:
//
//	out = inp + down(gelu(up(norm(inp))))
type mlp struct {
	Basic
	hidden   int
	norm     Norm
	up, down Linear
}

func newMLP(c Config, block int) *mlp {
	at, d := InBlock(block), c.Deviation(block)
	return &mlp{
		hidden: c.Hidden,
		norm:   c.NewNorm(at, "norm2"),
		up:     c.NewLinear(at, "up", 4*c.Hidden, c.Hidden, d),
		down:   c.NewLinear(at, "down", c.Hidden, 4*c.Hidden, c.Residual(d)),
	}
}

func (a *mlp) Params() []*Param {
	return slices.Concat(a.norm.Params(), a.up.Params(), a.down.Params())
}

func (a *mlp) Leaves() Width { return Width{Values: a.hidden} }

type mlpSaved struct{ mean, rstd, normed, up, active, out tensor.Mem }

func (a *mlp) saved(x *Exec, c *Cutter) (s mlpSaved) {
	d, all := x.Backend.DType(), c.Tokens
	c.Tokens = c.Queries
	s.mean, s.rstd = a.norm.Statistics(x, c)
	s.normed, s.up, s.active = c.Rows(a.hidden, d), c.Rows(4*a.hidden, d), c.Rows(4*a.hidden, d)
	c.Tokens = all
	s.out = c.Rows(a.hidden, d)
	return s
}

type mlpHeld struct{ dnormed, dup tensor.Mem }

func (a *mlp) held(x *Exec, c *Cutter) mlpHeld {
	d := x.Backend.DType()
	c.Tokens = c.Queries
	return mlpHeld{dnormed: c.Rows(a.hidden, d), dup: c.Rows(4*a.hidden, d)}
}

func (a *mlp) Memory(x *Exec, b *Batch, saved, held tensor.Mem) (tensor.Mem, int64, int64) {
	cs, ch := x.Cut(b, saved), x.Cut(b, held)
	s := a.saved(x, cs)
	a.held(x, ch)
	return s.out, cs.Off, ch.Off
}

func (a *mlp) Forward(x *Exec, b *Batch, saved, inp tensor.Mem) error {
	s, n := a.saved(x, x.Cut(b, saved)), b.Queries
	b.Carry(x, s.out, inp)
	inp = b.QueryRows(inp)
	a.norm.Forward(x, n, s.normed, s.mean, s.rstd, inp)
	a.up.ForwardGELU(x, n, s.active, s.up, s.normed)
	a.down.ForwardAdd(x, n, b.QueryRows(s.out), s.active, inp)
	return nil
}

func (a *mlp) BackwardInput(x *Exec, b *Batch, saved, held, inp, dout, din tensor.Mem) error {
	s, h, n := a.saved(x, x.Cut(b, saved)), a.held(x, x.Cut(b, held)), b.Queries
	b.Carry(x, din, dout)
	dout = b.QueryRows(dout)
	a.down.BackwardGELU(x, n, h.dup, dout, s.up)
	a.up.BackwardInput(x, n, h.dnormed, h.dup)
	a.norm.BackwardInputTo(x, n, b.QueryRows(din), dout, h.dnormed, b.QueryRows(inp), s.mean, s.rstd)
	return nil
}

func (a *mlp) BackwardWeight(x *Exec, b *Batch, saved, held, inp, dout tensor.Mem) error {
	s, h, n := a.saved(x, x.Cut(b, saved)), a.held(x, x.Cut(b, held)), b.Queries
	a.down.BackwardWeight(x, n, b.QueryRows(dout), s.active)
	a.up.BackwardWeight(x, n, h.dup, s.normed)
	a.norm.BackwardWeight(x, n, h.dnormed, b.QueryRows(inp), s.mean, s.rstd)
	return nil
}
