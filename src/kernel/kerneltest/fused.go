package kerneltest

import (
	"fmt"
	"math"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

// fused returns the calls of kernel.Fuser: what each should give is what the
// calls that it stands for give, one after the other.
func (of maker) fused() []call {
	var all []call
	for _, s := range products {
		n, c, o := s[0], s[1], s[2]
		all = append(all, of.matmulForwardAdd(n, c, o), of.matmulForwardGELU(n, c, o), of.matmulBackwardGELU(n, c, o))
	}
	for _, n := range tokens {
		for _, c := range []int{1, 17, 64, 129} {
			all = append(all, of.layerNormBackwardInputTo(n, c))
		}
	}
	return all
}

func (of maker) matmulForwardAdd(n, c, o int) call {
	m := of.matmulForward(n, c, o, true)
	add := of.draw().normal(n * o)
	out, bound := m.operands[0].want, m.operands[0].bound
	ref.Add(out, out, add)
	ref.Add(bound, bound, abs(add))
	m.name = fmt.Sprintf("MatmulForwardAdd/n=%d,c=%d,o=%d", n, c, o)
	m.operands = append(m.operands, in(add))
	m.do = func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
		k.(kernel.Fuser).MatmulForwardAdd(s, m[0], m[1], m[2], m[3], m[4], n, c, o)
	}
	return m
}

func (of maker) matmulForwardGELU(n, c, o int) call {
	m := of.matmulForward(n, c, o, true)
	pre, bound := m.operands[0].want, m.operands[0].bound
	out := make([]float64, n*o)
	ref.GELUForward(out, pre)
	m.name = fmt.Sprintf("MatmulForwardGELU/n=%d,c=%d,o=%d", n, c, o)
	m.operands = append([]operand{set(out, doubled(bound))}, m.operands...)
	m.do = func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
		k.(kernel.Fuser).MatmulForwardGELU(s, m[0], m[1], m[2], m[3], m[4], n, c, o)
	}
	return m
}

func (of maker) matmulBackwardGELU(n, c, o int) call {
	m := of.matmulBackwardInput(n, c, o)
	pre := of.draw().normal(n * c)
	dpre, bound := m.operands[0].want, m.operands[0].bound
	ref.GELUBackward(dpre, pre, dpre)
	for i := range bound {
		bound[i] *= 1 + math.Abs(pre[i])
	}
	m.name = fmt.Sprintf("MatmulBackwardGELU/n=%d,c=%d,o=%d", n, c, o)
	m.operands = append(m.operands, in(pre))
	m.do = func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
		k.(kernel.Fuser).MatmulBackwardGELU(s, m[0], m[1], m[2], m[3], n, c, o)
	}
	return m
}

func (of maker) layerNormBackwardInputTo(n, c int) call {
	m := of.layerNormBackwardInput(n, c)
	add := m.operands[0].data
	m.name = fmt.Sprintf("LayerNormBackwardInputTo/n=%d,c=%d", n, c)
	m.operands[0] = set(m.operands[0].want, m.operands[0].bound)
	m.operands = append(m.operands, in(add))
	m.do = func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
		k.(kernel.Fuser).LayerNormBackwardInputTo(s, m[0], m[6], m[1], m[2], m[3], m[4], m[5], n, c)
	}
	return m
}

// doubled returns 2·x: GELU's slope is below 1.13.
func doubled(x []float64) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		y[i] = 2 * x[i]
	}
	return y
}
