package ref

import "math"

// SwiGLUForward sets out (n, c) from the rows of gateup (n, 2c), gate, then up (Shazeer
// 2020):
//
//	out = silu(gate)·up, silu(x) = x·σ(x), σ(x) = 1/(1 + exp(-x))
func SwiGLUForward[F Float](out, gateup []F, n, c int) {
	for i := range n {
		gate, up := gateup[i*2*c:][:c], gateup[(i*2+1)*c:][:c]
		for j, g := range gate {
			x := float64(g)
			out[i*c+j] = F(x*logistic(x)) * up[j]
		}
	}
}

// SwiGLUBackward sets dgateup (n, 2c) from dout (n, c):
//
//	dgate = dout·up·(σ + gate·σ·(1 - σ))
//	dup   = dout·silu(gate)
func SwiGLUBackward[F Float](dgateup, dout, gateup []F, n, c int) {
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
