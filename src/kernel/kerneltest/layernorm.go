package kerneltest

import (
	"fmt"
	"math"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

// norm is rows far from 0, as the residual stream of a deep model has them,
// with their statistics. The backward calls are given mean and rstd, so that
// xhat = (inp - mean)·rstd has a small relative error there.
type norm struct {
	r           draw
	n, c        int
	inp, weight floats
	mean, rstd  []float64
}

func (of maker) newNorm(n, c int) norm {
	x := norm{r: of.draw(), n: n, c: c}
	x.inp, x.weight = x.r.normal(n*c), x.r.normal(c)
	for i := range x.inp {
		x.inp[i] = x.r.round(x.inp[i] + float64(i/c%5-2)*10) // row means -20 … 20
	}
	mean, rstd := make([]float64, n), make([]float64, n)
	ref.LayerNormForward(make([]float64, n*c), mean, rstd, x.inp, x.weight, make([]float64, c), n, c)
	x.mean, x.rstd = single(mean), single(rstd)
	return x
}

func (x norm) String() string { return fmt.Sprintf("n=%d,c=%d", x.n, x.c) }

// xhat returns the absolute value of the normalised element (i, j).
func (x norm) xhat(i, j int) float64 { return math.Abs(x.inp[i*x.c+j]-x.mean[i]) * x.rstd[i] }

func (of maker) layerNormForward(n, c int) call {
	x := of.newNorm(n, c)
	bias := x.r.normal(c)
	out, mean, rstd := make([]float64, n*c), make([]float64, n), make([]float64, n)
	ref.LayerNormForward(out, mean, rstd, x.inp, x.weight, bias, n, c)
	outBound, meanBound := make([]float64, n*c), make([]float64, n)
	for i := range n {
		for j := range c {
			meanBound[i] += math.Abs(x.inp[i*c+j]) / float64(c)
		}
		for j := range c {
			outBound[i*c+j] = math.Abs(bias[j]) +
				math.Abs(x.weight[j])*x.rstd[i]*(math.Abs(x.inp[i*c+j])+meanBound[i])
		}
	}
	return call{
		fmt.Sprintf("LayerNormForward/%v", x),
		[]operand{set(out, outBound), setWide(mean, meanBound), setWide(rstd, abs(rstd)), in(x.inp), in(x.weight), in(bias)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.LayerNormForward(s, m[0], m[1], m[2], m[3], m[4], m[5], n, c)
		},
	}
}

func (of maker) layerNormBackwardInput(n, c int) call {
	x := of.newNorm(n, c)
	dinp, dout := x.r.normal(n*c), x.r.normal(n*c)
	want, bound := clone(dinp), abs(dinp)
	ref.LayerNormBackwardInput(want, dout, x.inp, x.mean, x.rstd, x.weight, n, c)
	for i := range n {
		var g, gx float64 // means of |g| and of |g·xhat|
		for j := range c {
			gj := math.Abs(dout[i*c+j] * x.weight[j])
			g += gj / float64(c)
			gx += gj * x.xhat(i, j) / float64(c)
		}
		for j := range c {
			bound[i*c+j] += x.rstd[i] * (math.Abs(dout[i*c+j]*x.weight[j]) + g + x.xhat(i, j)*gx)
		}
	}
	return call{
		fmt.Sprintf("LayerNormBackwardInput/%v", x),
		[]operand{add(dinp, want, bound), in(dout), in(x.inp), inWide(x.mean), inWide(x.rstd), in(x.weight)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.LayerNormBackwardInput(s, m[0], m[1], m[2], m[3], m[4], m[5], n, c)
		},
	}
}

func (of maker) layerNormBackwardWeight(n, c int) call {
	x := of.newNorm(n, c)
	dout, dweight, dbias := x.r.normal(n*c), x.r.normal(c), x.r.normal(c)
	wantWeight, wantBias := clone(dweight), clone(dbias)
	boundWeight, boundBias := abs(dweight), abs(dbias)
	ref.LayerNormBackwardWeight(wantWeight, wantBias, dout, x.inp, x.mean, x.rstd, n, c)
	for i := range n {
		for j := range c {
			boundWeight[j] += math.Abs(dout[i*c+j]) * x.xhat(i, j)
			boundBias[j] += math.Abs(dout[i*c+j])
		}
	}
	return call{
		fmt.Sprintf("LayerNormBackwardWeight/%v", x),
		[]operand{addWide(dweight, wantWeight, boundWeight), addWide(dbias, wantBias, boundBias),
			in(dout), in(x.inp), inWide(x.mean), inWide(x.rstd)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.LayerNormBackwardWeight(s, m[0], m[1], m[2], m[3], m[4], m[5], n, c)
		},
	}
}
