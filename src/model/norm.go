package model

import "dynmo/src/tensor"

// norm is LayerNorm with weight and bias (Ba, Kiros & Hinton 2016), or RMSNorm with a
// weight alone (Zhang & Sennrich 2019).
type norm struct {
	w, b *Param
	eps  float64 // of RMSNorm; 0: it is LayerNorm
}

// newNorm returns a norm of the model's kind.
func (c Config) newNorm(at place, name string) norm {
	l := norm{w: at.param(name+".weight", c.Hidden, 1, plain, -1), eps: c.NormEps}
	if c.biased() {
		l.b = at.param(name+".bias", c.Hidden, 1, plain, 0)
	}
	return l
}

// biased reports whether norms are LayerNorm, and norms and matrices have biases.
func (c Config) biased() bool { return c.NormEps == 0 }

func (l norm) params() []*Param { return present(l.w, l.b) }

// statistics takes what forward stores of every token for the backward passes; RMSNorm has
// no mean.
func (l norm) statistics(x *Exec, c *cutter) (mean, rstd tensor.Mem) {
	wide := x.Backend.DType().Wide()
	if l.eps == 0 {
		mean = c.rows(1, wide)
	}
	return mean, c.rows(1, wide)
}

func (l norm) forward(x *Exec, n int, out, mean, rstd, inp tensor.Mem) {
	if l.eps > 0 {
		x.Backend.RMSNormForward(x.Stream, out, rstd, inp, l.w.W, n, l.w.Rows, l.eps)
		return
	}
	x.Backend.LayerNormForward(x.Stream, out, mean, rstd, inp, l.w.W, l.b.W, n, l.w.Rows)
}

// backwardInput adds to dinp.
func (l norm) backwardInput(x *Exec, n int, dinp, dout, inp, mean, rstd tensor.Mem) {
	if l.eps > 0 {
		x.Backend.RMSNormBackwardInput(x.Stream, dinp, dout, inp, rstd, l.w.W, n, l.w.Rows)
		return
	}
	x.Backend.LayerNormBackwardInput(x.Stream, dinp, dout, inp, mean, rstd, l.w.W, n, l.w.Rows)
}

// backwardInputTo sets dinp, unless it is absent, to add + what backwardInput adds.
func (l norm) backwardInputTo(x *Exec, n int, dinp, add, dout, inp, mean, rstd tensor.Mem) {
	switch {
	case dinp.IsZero():
	case l.eps > 0:
		x.Backend.RMSNormBackwardInputTo(x.Stream, dinp, add, dout, inp, rstd, l.w.W, n, l.w.Rows)
	default:
		x.Backend.LayerNormBackwardInputTo(x.Stream, dinp, add, dout, inp, mean, rstd, l.w.W, n, l.w.Rows)
	}
}

func (l norm) backwardWeight(x *Exec, n int, dout, inp, mean, rstd tensor.Mem) {
	switch {
	case l.w.Frozen:
	case l.eps > 0:
		x.Backend.RMSNormBackwardWeight(x.Stream, l.w.G, dout, inp, rstd, n, l.w.Rows)
	default:
		x.Backend.LayerNormBackwardWeight(x.Stream, l.w.G, l.b.G, dout, inp, mean, rstd, n, l.w.Rows)
	}
}
