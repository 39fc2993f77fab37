package model

import "dynmo/src/tensor"

// Norm is LayerNorm with weight and bias (Ba, Kiros & Hinton 2016), or RMSNorm with a
// weight alone (Zhang & Sennrich 2019).
type Norm struct {
	W, B *Param
	eps  float64 // of RMSNorm; 0: it is LayerNorm
}

// NewNorm returns a norm of the model's kind.
func (c Config) NewNorm(at Place, name string) Norm {
	l := Norm{W: at.Param(name+".weight", c.Hidden, 1, RolePlain, -1), eps: c.NormEps}
	if c.biased() {
		l.B = at.Param(name+".bias", c.Hidden, 1, RolePlain, 0)
	}
	return l
}

// biased reports whether norms are LayerNorm, and norms and matrices have biases.
func (c Config) biased() bool { return c.NormEps == 0 }

func (l Norm) Params() []*Param { return present(l.W, l.B) }

// Statistics takes what forward stores of every token for the backward passes; RMSNorm has
// no mean.
func (l Norm) Statistics(x *Exec, c *Cutter) (mean, rstd tensor.Mem) {
	wide := x.Backend.DType().Wide()
	if l.eps == 0 {
		mean = c.Rows(1, wide)
	}
	return mean, c.Rows(1, wide)
}

func (l Norm) Forward(x *Exec, n int, out, mean, rstd, inp tensor.Mem) {
	if l.eps > 0 {
		x.Backend.RMSNormForward(x.Stream, out, rstd, inp, l.W.W, n, l.W.Rows, l.eps)
		return
	}
	x.Backend.LayerNormForward(x.Stream, out, mean, rstd, inp, l.W.W, l.B.W, n, l.W.Rows)
}

// BackwardInput adds to dinp.
func (l Norm) BackwardInput(x *Exec, n int, dinp, dout, inp, mean, rstd tensor.Mem) {
	if l.eps > 0 {
		x.Backend.RMSNormBackwardInput(x.Stream, dinp, dout, inp, rstd, l.W.W, n, l.W.Rows)
		return
	}
	x.Backend.LayerNormBackwardInput(x.Stream, dinp, dout, inp, mean, rstd, l.W.W, n, l.W.Rows)
}

// BackwardInputTo sets dinp, unless it is absent, to add + what backwardInput adds.
func (l Norm) BackwardInputTo(x *Exec, n int, dinp, add, dout, inp, mean, rstd tensor.Mem) {
	switch {
	case dinp.IsZero():
	case l.eps > 0:
		x.Backend.RMSNormBackwardInputTo(x.Stream, dinp, add, dout, inp, rstd, l.W.W, n, l.W.Rows)
	default:
		x.Backend.LayerNormBackwardInputTo(x.Stream, dinp, add, dout, inp, mean, rstd, l.W.W, n, l.W.Rows)
	}
}

func (l Norm) BackwardWeight(x *Exec, n int, dout, inp, mean, rstd tensor.Mem) {
	switch {
	case l.W.Frozen:
	case l.eps > 0:
		x.Backend.RMSNormBackwardWeight(x.Stream, l.W.G, dout, inp, rstd, n, l.W.Rows)
	default:
		x.Backend.LayerNormBackwardWeight(x.Stream, l.W.G, l.B.G, dout, inp, mean, rstd, n, l.W.Rows)
	}
}
