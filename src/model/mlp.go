package model

import "dynmo/src/tensor"

// mlp is the second half of a block:
//
//	out = inp + down(gelu(up(norm(inp))))
type mlp struct {
	hidden   int
	norm     norm
	up, down linear
}

func newMLP(c Config, block int) *mlp {
	d := c.deviation(block)
	return &mlp{
		hidden: c.Hidden,
		norm:   newNorm("norm2", c.Hidden, block),
		up:     newLinear("up", 4*c.Hidden, c.Hidden, block, d),
		down:   newLinear("down", c.Hidden, 4*c.Hidden, block, c.residual(d)),
	}
}

func (a *mlp) params() []*Param {
	return []*Param{a.norm.w, a.norm.b, a.up.w, a.up.b, a.down.w, a.down.b}
}

type mlpSaved struct{ mean, rstd, normed, up, active, out tensor.Mem }

func (a *mlp) saved(x *Exec, c *cutter) mlpSaved {
	d, n := x.Backend.DType(), x.N()
	return mlpSaved{
		mean: c.take(n, d.Wide()), rstd: c.take(n, d.Wide()), normed: c.take(n*a.hidden, d),
		up: c.take(4*n*a.hidden, d), active: c.take(4*n*a.hidden, d), out: c.take(n*a.hidden, d),
	}
}

type mlpHeld struct{ dnormed, dup tensor.Mem }

func (a *mlp) held(x *Exec, c *cutter) mlpHeld {
	d, n := x.Backend.DType(), x.N()
	return mlpHeld{dnormed: c.take(n*a.hidden, d), dup: c.take(4*n*a.hidden, d)}
}

func (a *mlp) sizes(x *Exec) (int64, int64) {
	var saved, held cutter
	a.saved(x, &saved)
	a.held(x, &held)
	return saved.off, held.off
}

func (a *mlp) output(x *Exec, saved tensor.Mem) tensor.Mem {
	return a.saved(x, &cutter{m: saved}).out
}

func (a *mlp) forward(x *Exec, saved, inp tensor.Mem) {
	s := a.saved(x, &cutter{m: saved})
	a.norm.forward(x, s.normed, s.mean, s.rstd, inp)
	a.up.forwardGELU(x, s.active, s.up, s.normed)
	a.down.forwardAdd(x, s.out, s.active, inp)
}

func (a *mlp) backwardInput(x *Exec, saved, held, inp, dout, din tensor.Mem) {
	s, h := a.saved(x, &cutter{m: saved}), a.held(x, &cutter{m: held})
	a.down.backwardGELU(x, h.dup, dout, s.up)
	a.up.backwardInput(x, h.dnormed, h.dup)
	a.norm.backwardInputTo(x, din, dout, h.dnormed, inp, s.mean, s.rstd)
}

func (a *mlp) backwardWeight(x *Exec, saved, held, inp, dout tensor.Mem) {
	s, h := a.saved(x, &cutter{m: saved}), a.held(x, &cutter{m: held})
	a.down.backwardWeight(x, dout, s.active)
	a.up.backwardWeight(x, h.dup, s.normed)
	a.norm.backwardWeight(x, h.dnormed, inp, s.mean, s.rstd)
}
