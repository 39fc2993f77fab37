package kerneltest

import (
	"fmt"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

// The bound of a product is the product of absolute values, |A||B|, and what
// is added to it.

func (of maker) matmulForward(n, c, o int, withBias bool) call {
	r := of.draw()
	inp, weight, bias := r.normal(n*c), r.normal(o*c), r.normal(o)
	if !withBias {
		bias = nil
	}
	out, bound := make([]float64, n*o), make([]float64, n*o)
	ref.MatmulForward(out, inp, weight, bias, n, c, o)
	ref.MatmulForward(bound, abs(inp), abs(weight), abs(bias), n, c, o)
	return call{
		fmt.Sprintf("MatmulForward/n=%d,c=%d,o=%d,bias=%t", n, c, o, withBias),
		[]operand{set(out, bound), in(inp), in(weight), in(bias)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.MatmulForward(s, m[0], m[1], m[2], m[3], n, c, o)
		},
	}
}

func (of maker) matmulBackwardInput(n, c, o int) call {
	r := of.draw()
	dout, weight := r.normal(n*o), r.normal(o*c)
	dinp, bound := make([]float64, n*c), make([]float64, n*c)
	ref.MatmulBackwardInput(dinp, dout, weight, n, c, o)
	ref.MatmulBackwardInput(bound, abs(dout), abs(weight), n, c, o)
	return call{
		fmt.Sprintf("MatmulBackwardInput/n=%d,c=%d,o=%d", n, c, o),
		[]operand{set(dinp, bound), in(dout), in(weight)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.MatmulBackwardInput(s, m[0], m[1], m[2], n, c, o)
		},
	}
}

func (of maker) matmulBackwardWeight(n, c, o int, withBias bool) call {
	r := of.draw()
	dout, inp, dweight, dbias := r.normal(n*o), r.normal(n*c), r.normal(o*c), r.normal(o)
	if !withBias {
		dbias = nil
	}
	wantWeight, wantBias := clone(dweight), clone(dbias)
	boundWeight, boundBias := abs(dweight), abs(dbias)
	ref.MatmulBackwardWeight(wantWeight, wantBias, dout, inp, n, c, o)
	ref.MatmulBackwardWeight(boundWeight, boundBias, abs(dout), abs(inp), n, c, o)
	return call{
		fmt.Sprintf("MatmulBackwardWeight/n=%d,c=%d,o=%d,bias=%t", n, c, o, withBias),
		[]operand{addWide(dweight, wantWeight, boundWeight), addWide(dbias, wantBias, boundBias), in(dout), in(inp)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.MatmulBackwardWeight(s, m[0], m[1], m[2], m[3], n, c, o)
		},
	}
}
