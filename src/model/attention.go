package model

import (
	"math"

	"dynmo/src/tensor"
)

// attention is the first half of a block:
//
//	out = inp + proj(attend(qkv(norm(inp))))
type attention struct {
	hidden, heads int
	norm          norm
	qkv, proj     linear
}

func newAttention(c Config, block int) *attention {
	d := c.deviation(block)
	return &attention{
		hidden: c.Hidden, heads: c.Heads,
		norm: newNorm("norm1", c.Hidden, block),
		qkv:  newLinear("qkv", 3*c.Hidden, c.Hidden, block, d),
		proj: newLinear("proj", c.Hidden, c.Hidden, block, c.residual(d)),
	}
}

// residual returns the deviation of a matrix that writes to the residual
// stream: smaller by the root of the number of such matrices (Radford et al.
// 2019).
func (c Config) residual(deviation float64) float64 {
	return deviation / math.Sqrt(float64(2*c.Blocks))
}

func (a *attention) params() []*Param {
	return []*Param{a.norm.w, a.norm.b, a.qkv.w, a.qkv.b, a.proj.w, a.proj.b}
}

type attentionSaved struct{ mean, rstd, normed, qkv, lse, attended, out tensor.Mem }

func (a *attention) saved(x *Exec, c *cutter) attentionSaved {
	d, n := x.Backend.DType(), x.N()
	return attentionSaved{
		mean: c.take(n, d.Wide()), rstd: c.take(n, d.Wide()), normed: c.take(n*a.hidden, d),
		qkv: c.take(3*n*a.hidden, d), lse: c.take(n*a.heads, d.Wide()),
		attended: c.take(n*a.hidden, d), out: c.take(n*a.hidden, d),
	}
}

type attentionHeld struct{ dnormed, dqkv tensor.Mem }

func (a *attention) held(x *Exec, c *cutter) attentionHeld {
	d, n := x.Backend.DType(), x.N()
	return attentionHeld{dnormed: c.take(n*a.hidden, d), dqkv: c.take(3*n*a.hidden, d)}
}

func (a *attention) sizes(x *Exec) (int64, int64) {
	var saved, held cutter
	a.saved(x, &saved)
	a.held(x, &held)
	return saved.off, held.off
}

func (a *attention) output(x *Exec, saved tensor.Mem) tensor.Mem {
	return a.saved(x, &cutter{m: saved}).out
}

func (a *attention) forward(x *Exec, saved, inp tensor.Mem) {
	s := a.saved(x, &cutter{m: saved})
	a.norm.forward(x, s.normed, s.mean, s.rstd, inp)
	a.qkv.forward(x, s.qkv, s.normed)
	x.Backend.AttentionForward(x.Stream, s.attended, s.lse, s.qkv, x.offsets, x.B, x.T, x.N(), a.hidden, a.heads)
	a.proj.forwardAdd(x, s.out, s.attended, inp)
}

func (a *attention) backwardInput(x *Exec, saved, held, inp, dout, din tensor.Mem) {
	s, h := a.saved(x, &cutter{m: saved}), a.held(x, &cutter{m: held})
	dattended := x.scratch
	a.proj.backwardInput(x, dattended, dout)
	x.Backend.AttentionBackward(x.Stream, h.dqkv, dattended, s.qkv, s.attended, s.lse, x.offsets, x.B, x.T, x.N(), a.hidden, a.heads)
	a.qkv.backwardInput(x, h.dnormed, h.dqkv)
	a.norm.backwardInputTo(x, din, dout, h.dnormed, inp, s.mean, s.rstd)
}

func (a *attention) backwardWeight(x *Exec, saved, held, inp, dout tensor.Mem) {
	s, h := a.saved(x, &cutter{m: saved}), a.held(x, &cutter{m: held})
	a.proj.backwardWeight(x, dout, s.attended)
	a.qkv.backwardWeight(x, h.dqkv, s.normed)
	a.norm.backwardWeight(x, h.dnormed, inp, s.mean, s.rstd)
}
