package ref

import "math"

// layerNormEps keeps rstd finite on a constant row; GPT-2's value.
const layerNormEps = 1e-5

// LayerNormForward normalises the rows of inp (n, c) (Ba, Kiros & Hinton
// 2016), with var the biased variance:
//
//	rstd = 1/sqrt(var_c(inp) + 1e-5)
//	out  = (inp - mean)·rstd·weight + bias
//
// It stores mean and rstd (n) for the backward pass.
func LayerNormForward[F Float](out, mean, rstd, inp, weight, bias []F, n, c int) {
	for i := range n {
		x, y := inp[i*c:][:c], out[i*c:][:c]
		var sum, squares float64
		for _, xj := range x {
			sum += float64(xj)
		}
		m := sum / float64(c)
		for _, xj := range x {
			d := float64(xj) - m
			squares += d * d
		}
		r := 1 / math.Sqrt(squares/float64(c)+layerNormEps)
		for j, xj := range x {
			y[j] = F((float64(xj)-m)*r)*weight[j] + bias[j]
		}
		mean[i], rstd[i] = F(m), F(r)
	}
}

// LayerNormBackwardInput adds to dinp (n, c), with xhat = (inp - mean)·rstd
// and g = dout·weight,
//
//	dinp += rstd·(g - mean_c(g) - xhat·mean_c(g·xhat))
func LayerNormBackwardInput[F Float](dinp, dout, inp, mean, rstd, weight []F, n, c int) {
	for i := range n {
		dx, dy, x := dinp[i*c:][:c], dout[i*c:][:c], inp[i*c:][:c]
		m, r := mean[i], rstd[i]
		var g, gx float64 // means of g and g·xhat
		for j := range c {
			gj := float64(dy[j] * weight[j])
			g += gj
			gx += gj * float64((x[j]-m)*r)
		}
		g /= float64(c)
		gx /= float64(c)
		for j := range c {
			dx[j] += r * (dy[j]*weight[j] - F(g) - (x[j]-m)*r*F(gx))
		}
	}
}

// layerNormBackwardWeight adds to dweight and dbias (c), with
// xhat = (inp - mean)·rstd,
//
//	dweight += Σ_n dout·xhat
//	dbias   += Σ_n dout
func layerNormBackwardWeight[F Float](dweight, dbias, dout, inp, mean, rstd []F, n, c int) {
	for i := range n {
		dy, x := dout[i*c:][:c], inp[i*c:][:c]
		for j := range c {
			dweight[j] += dy[j] * ((x[j] - mean[i]) * rstd[i])
			dbias[j] += dy[j]
		}
	}
}
