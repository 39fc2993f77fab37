package ref

import (
	"math"

	"dynmo/src/tensor"
)

// The tanh form of GELU (Hendrycks & Gimpel 2016, section 2).
var geluScale = math.Sqrt(2 / math.Pi)

const geluCubic = 0.044715

// geluForward sets out = 0.5·x·(1 + tanh(sqrt(2/π)·(x + 0.044715·x³))), with x
// the elements of inp. out and inp have the same length.
func geluForward[F Float](out, inp []F) {
	for i := range inp {
		x := float64(inp[i])
		out[i] = F(0.5 * x * (1 + math.Tanh(geluScale*(x+geluCubic*x*x*x))))
	}
}

// geluBackward sets dinp = dout·gelu'(inp). With u = sqrt(2/π)·(x + 0.044715·x³),
//
//	gelu'(x) = 0.5·(1 + tanh u) + 0.5·x·(1 - tanh² u)·du/dx
//
// All have the same length; dinp may be dout.
func geluBackward[F Float](dinp, inp, dout []F) {
	for i := range inp {
		x := float64(inp[i])
		tanh := math.Tanh(geluScale * (x + geluCubic*x*x*x))
		slope := geluScale * (1 + 3*geluCubic*x*x)
		dinp[i] = dout[i] * F(0.5*(1+tanh)+0.5*x*(1-tanh*tanh)*slope)
	}
}

// add sets out = a + b. All have the same length; out may be a or b.
func add[F Float](out, a, b []F) {
	for i := range out {
		out[i] = a[i] + b[i]
	}
}

// round sets out to the bits of the bfloat16 numbers nearest to x, the even one of two. Both
// have the same length.
func round[F Float](out []uint16, x []F) {
	for i := range out {
		out[i] = tensor.ToBF16(float32(x[i]))
	}
}

// addRounded sets out = a + b, or b where a is absent, with b as bits of bfloat16 numbers. All
// have the same length; out may be a.
func addRounded[F Float](out, a []F, b []uint16) {
	for i := range out {
		x := F(tensor.FromBF16(b[i]))
		if a != nil {
			x += a[i]
		}
		out[i] = x
	}
}

// swiGLUForward sets out (n, c) from the rows of gateup (n, 2c), gate, then up (Shazeer
// 2020):
//
//	out = silu(gate)·up, silu(x) = x·σ(x), σ(x) = 1/(1 + exp(-x))
func swiGLUForward[F Float](out, gateup []F, n, c int) {
	for i := range n {
		gate, up := gateup[i*2*c:][:c], gateup[(i*2+1)*c:][:c]
		for j, g := range gate {
			x := float64(g)
			out[i*c+j] = F(x*logistic(x)) * up[j]
		}
	}
}

// swiGLUBackward sets dgateup (n, 2c) from dout (n, c):
//
//	dgate = dout·up·(σ + gate·σ·(1 - σ))
//	dup   = dout·silu(gate)
func swiGLUBackward[F Float](dgateup, dout, gateup []F, n, c int) {
	for i := range n {
		gate, up, dy := gateup[i*2*c:][:c], gateup[(i*2+1)*c:][:c], dout[i*c:][:c]
		dgate, dup := dgateup[i*2*c:][:c], dgateup[(i*2+1)*c:][:c]
		for j := range c {
			x := float64(gate[j])
			s := logistic(x)
			dgate[j] = dy[j] * up[j] * F(s+x*s*(1-s))
			dup[j] = dy[j] * F(x*s)
		}
	}
}

// logistic is 1/(1 + exp(-x)).
func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
