package model

import (
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// Norm is LayerNorm with weight and bias (Ba, Kiros & Hinton 2016), or RMSNorm with a
// weight alone (Zhang & Sennrich 2019).
type Norm struct {
	W, B *Param
	eps  float64
}

// NewNorm returns a norm of Config.Hidden channels: RMSNorm if the model has NormEps, else LayerNorm.
func (c Config) NewNorm(at Place, name string) Norm {
	l := Norm{W: at.Param(name+".weight", c.Hidden, 1, RolePlain, -1), eps: c.NormEps}
	if c.biased() {
		l.B, l.eps = at.Param(name+".bias", c.Hidden, 1, RolePlain, 0), kernel.LayerNormEps
	}
	return l
}

// biased reports whether norms are LayerNorm, and norms and matrices have biases.
func (c Config) biased() bool { return c.NormEps == 0 }

func (l Norm) Params() []*Param { return present(l.W, l.B) }

// bias returns the biases, absent of RMSNorm, and their gradients.
func (l Norm) bias() (values, gradients tensor.Mem) {
	if l.B == nil {
		return values, gradients
	}
	return l.B.W, l.B.G
}

// Statistics takes memory from c for the mean and 1/deviation of each token, which Forward stores for
// the backward passes. RMSNorm has no mean: that memory is absent.
func (l Norm) Statistics(x *Exec, c *Cutter) (mean, rstd tensor.Mem) {
	wide := x.Backend.DType().Wide()
	if l.B != nil {
		mean = c.Rows(1, wide)
	}
	return mean, c.Rows(1, wide)
}

func (l Norm) Forward(x *Exec, n int, out, mean, rstd, inp tensor.Mem) {
	bias, _ := l.bias()
	x.Backend.NormForward(x.Stream, out, mean, rstd, inp, l.W.W, bias, n, l.W.Rows, l.eps)
}

// BackwardInput adds the gradient of inp to dinp.
func (l Norm) BackwardInput(x *Exec, n int, dinp, dout, inp, mean, rstd tensor.Mem) {
	x.Backend.NormBackwardInput(x.Stream, dinp, dout, inp, mean, rstd, l.W.W, n, l.W.Rows)
}

// BackwardInputTo sets dinp to add + the gradient of inp. Nothing happens if dinp is absent.
func (l Norm) BackwardInputTo(x *Exec, n int, dinp, add, dout, inp, mean, rstd tensor.Mem) {
	if !dinp.IsZero() {
		x.Backend.NormBackwardInputTo(x.Stream, dinp, add, dout, inp, mean, rstd, l.W.W, n, l.W.Rows)
	}
}

func (l Norm) BackwardWeight(x *Exec, n int, dout, inp, mean, rstd tensor.Mem) {
	if !l.W.Frozen {
		_, gradient := l.bias()
		x.Backend.NormBackwardWeight(x.Stream, l.W.G, gradient, dout, inp, mean, rstd, n, l.W.Rows)
	}
}
