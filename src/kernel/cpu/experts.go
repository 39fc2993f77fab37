//go:build blas && cgo

package cpu

// #include "dynmo_cpu.h"
import "C"

import (
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

// route does a call on which tokens go where: few numbers, in float64, by package ref.
func route(call *kernel.Call) {
	x := func(i int) []float32 { return tensor.Of[float32](call.Mem[i]) }
	indices := func(i int) []int32 { return tensor.Of[int32](call.Mem[i]) }
	doubles := func(i int) []float64 { return tensor.Of[float64](call.Mem[i]) }
	switch call.Op {
	case kernel.TakeTokens:
		ref.TakeTokens(indices(0), doubles(1), x(2), x(3), x(4), x(5), indices(6), call.Depths)
	case kernel.ListTokens:
		ref.ListTokens(indices(0), x(1), indices(2), indices(3), indices(4), x(5), indices(6), indices(7), call.Depths)
	case kernel.SquashLogits:
		ref.SquashLogits(doubles(0), x(1), x(2), x(3), call.N, call.E)
	case kernel.SquashGradient:
		ref.SquashGradient(x(0), x(1), x(2), x(3), call.N, call.E)
	case kernel.BalanceScores:
		ref.BalanceScores(doubles(0), x(1), call.Routing, call.N, call.E)
	case kernel.RouteTokens:
		ref.RouteTokens(indices(0), x(1), doubles(2), doubles(3), x(4), doubles(5), call.Routing, call.N, call.E, call.K)
	case kernel.RouteGradient:
		ref.RouteGradient(x(0), x(1), indices(2), doubles(3), call.Routing, call.N, call.E, call.K)
	case kernel.PlaceTokens:
		ref.PlaceTokens(indices(0), indices(1), x(2), indices(3), indices(4), x(5), call.K, call.First)
	}
}

// group makes a product of each expert that has rows, by the kernels of products. It
// panics if ends are not as kernel.Backend says.
func (k *backend) group(call *kernel.Call) (status C.int32_t) {
	ends, c, o := tensor.Of[int32](call.Mem[3]), call.C, call.O
	x := func(i, first int) *C.float {
		return (*C.float)(call.Mem[i].Span(int64(first)*tensor.F32.Size(), 0).Ptr)
	}
	for e := range call.E {
		lo, hi, matrix := int(ends[e]), int(ends[e+1]), e*(o*c+call.Gap)
		if lo < 0 || hi < lo || hi > call.N {
			panic("cpu: rows of experts do not ascend, or are more than there are")
		}
		if lo == hi {
			continue
		}
		rows, inner, outer := C.int64_t(hi-lo), C.int64_t(c), C.int64_t(o)
		switch call.Op {
		case kernel.GroupedForward:
			status = C.dynmo_cpu_matmul_forward(k.c, x(0, lo*o), x(1, lo*c), x(2, matrix), nil, rows, inner, outer)
		case kernel.GroupedBackwardInput:
			status = C.dynmo_cpu_matmul_backward_input(k.c, x(0, lo*c), x(1, lo*o), x(2, matrix), rows, inner, outer)
		case kernel.GroupedBackwardWeight:
			status = C.dynmo_cpu_matmul_backward_weight(k.c, x(0, matrix), nil, x(1, lo*o), x(2, lo*c), rows, inner, outer)
		}
		if status != C.DYNMO_CPU_OK {
			return status
		}
	}
	return C.DYNMO_CPU_OK
}
