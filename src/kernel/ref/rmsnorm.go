package ref

import "math"

// RMSNormForward scales the rows of inp (n, c) (Zhang & Sennrich 2019):
//
//	rstd = 1/sqrt(mean_c(inp²) + eps)
//	out  = inp·rstd·weight
//
// It stores rstd (n) for the backward pass.
func RMSNormForward[F Float](out, rstd, inp, weight []F, n, c int, eps float64) {
	for i := range n {
		x, y := inp[i*c:][:c], out[i*c:][:c]
		var squares float64
		for _, xj := range x {
			squares += float64(xj) * float64(xj)
		}
		r := 1 / math.Sqrt(squares/float64(c)+eps)
		for j, xj := range x {
			y[j] = F(float64(xj)*r) * weight[j]
		}
		rstd[i] = F(r)
	}
}

// RMSNormBackwardInput adds to dinp (n, c), with xhat = inp·rstd and g = dout·weight,
//
//	dinp += rstd·(g - xhat·mean_c(g·xhat))
func RMSNormBackwardInput[F Float](dinp, dout, inp, rstd, weight []F, n, c int) {
	for i := range n {
		dx, dy, x := dinp[i*c:][:c], dout[i*c:][:c], inp[i*c:][:c]
		r := rstd[i]
		var gx float64 // mean of g·xhat
		for j := range c {
			gx += float64(dy[j]*weight[j]) * float64(x[j]*r)
		}
		gx /= float64(c)
		for j := range c {
			dx[j] += r * (dy[j]*weight[j] - x[j]*r*F(gx))
		}
	}
}

// rmsNormBackwardWeight adds to dweight (c), with xhat = inp·rstd,
//
//	dweight += Σ_n dout·xhat
func rmsNormBackwardWeight[F Float](dweight, dout, inp, rstd []F, n, c int) {
	for i := range n {
		dy, x := dout[i*c:][:c], inp[i*c:][:c]
		for j := range c {
			dweight[j] += dy[j] * (x[j] * rstd[i])
		}
	}
}
