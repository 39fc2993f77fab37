package ref

import "math"

// NormForward normalises the rows of inp (n, c). It is LayerNorm (Ba, Kiros & Hinton
// 2016), with var the biased variance:
//
//	rstd = 1/sqrt(var_c(inp) + eps)
//	out  = (inp - mean)·rstd·weight + bias
//
// Without mean and bias it is RMSNorm (Zhang & Sennrich 2019):
//
//	rstd = 1/sqrt(mean_c(inp²) + eps)
//	out  = inp·rstd·weight
//
// It stores mean and rstd (n) for the backward pass.
func NormForward[F Float](out, mean, rstd, inp, weight, bias []F, n, c int, eps float64) {
	for i := range n {
		x, y := inp[i*c:][:c], out[i*c:][:c]
		var m, squares float64
		if mean != nil {
			for _, xj := range x {
				m += float64(xj)
			}
			m /= float64(c)
			mean[i] = F(m)
		}
		for _, xj := range x {
			d := float64(xj) - m
			squares += d * d
		}
		r := 1 / math.Sqrt(squares/float64(c)+eps)
		for j, xj := range x {
			y[j] = F((float64(xj)-m)*r) * weight[j]
			if bias != nil {
				y[j] += bias[j]
			}
		}
		rstd[i] = F(r)
	}
}

// normBackwardInput adds to dinp (n, c), with xhat = (inp - mean)·rstd
// and g = dout·weight,
//
//	dinp += rstd·(g - mean_c(g) - xhat·mean_c(g·xhat))
//
// Without mean it is RMSNorm's, with xhat = inp·rstd,
//
//	dinp += rstd·(g - xhat·mean_c(g·xhat))
func normBackwardInput[F Float](dinp, dout, inp, mean, rstd, weight []F, n, c int) {
	for i := range n {
		dx, dy, x := dinp[i*c:][:c], dout[i*c:][:c], inp[i*c:][:c]
		m, r := meanOf(mean, i), rstd[i]
		var g, gx float64 // means of g and g·xhat
		for j := range c {
			gj := float64(dy[j] * weight[j])
			if mean != nil {
				g += gj
			}
			gx += gj * float64((x[j]-m)*r)
		}
		g /= float64(c)
		gx /= float64(c)
		for j := range c {
			dx[j] += r * (dy[j]*weight[j] - F(g) - (x[j]-m)*r*F(gx))
		}
	}
}

// normBackwardWeight adds to dweight and, unless they are absent, dbias (c), with
// xhat = (inp - mean)·rstd,
//
//	dweight += Σ_n dout·xhat
//	dbias   += Σ_n dout
func normBackwardWeight[F Float](dweight, dbias, dout, inp, mean, rstd []F, n, c int) {
	for i := range n {
		dy, x, m := dout[i*c:][:c], inp[i*c:][:c], meanOf(mean, i)
		for j := range c {
			dweight[j] += dy[j] * ((x[j] - m) * rstd[i])
			if dbias != nil {
				dbias[j] += dy[j]
			}
		}
	}
}

// meanOf returns the mean of row i, 0 where rows have none.
func meanOf[F Float](mean []F, i int) F {
	if mean == nil {
		return 0
	}
	return mean[i]
}
