//go:build cuda && cgo

package cuda

// #include "calls.h"
import "C"

import (
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// fused is a Backend whose library does some calls in one: that of BF16. Results
// that are not kept are not rounded to it either.
type fused struct{ *Backend }

// LayerNormBackwardInputTo: see kernel.Fuser.
func (k fused) LayerNormBackwardInputTo(s device.Stream, dinp, add, dout, inp, mean, rstd, weight tensor.Mem, n, c int) {
	k.check.LayerNormBackwardInputTo(dinp, add, dout, inp, mean, rstd, weight, n, c)
	k.enqueued(s, "LayerNormBackwardInputTo", C.call_layernorm_backward_input(k.table, k.c, handle(s), dinp.Ptr, add.Ptr,
		dout.Ptr, inp.Ptr, floats(mean), floats(rstd), weight.Ptr, size(n), size(c)))
}

// MatmulForwardAdd: see kernel.Fuser.
func (k fused) MatmulForwardAdd(s device.Stream, out, inp, weight, bias, add tensor.Mem, n, c, o int) {
	k.check.MatmulForwardAdd(out, inp, weight, bias, add, n, c, o)
	k.enqueued(s, "MatmulForwardAdd", C.call_matmul_forward(k.table, k.c, handle(s), out.Ptr, inp.Ptr, weight.Ptr,
		bias.Ptr, add.Ptr, size(n), size(c), size(o)))
}

// MatmulForwardGELU: see kernel.Fuser.
func (k fused) MatmulForwardGELU(s device.Stream, out, pre, inp, weight, bias tensor.Mem, n, c, o int) {
	k.check.MatmulForwardGELU(out, pre, inp, weight, bias, n, c, o)
	k.enqueued(s, "MatmulForwardGELU", C.call_matmul_gelu(k.table, k.c, handle(s), out.Ptr, pre.Ptr, inp.Ptr, weight.Ptr,
		bias.Ptr, size(n), size(c), size(o)))
}

// MatmulBackwardGELU: see kernel.Fuser.
func (k fused) MatmulBackwardGELU(s device.Stream, dpre, dout, weight, pre tensor.Mem, n, c, o int) {
	k.check.MatmulBackwardGELU(dpre, dout, weight, pre, n, c, o)
	k.enqueued(s, "MatmulBackwardGELU", C.call_matmul_backward_gelu(k.table, k.c, handle(s), dpre.Ptr, dout.Ptr,
		weight.Ptr, pre.Ptr, size(n), size(c), size(o)))
}

var _ kernel.Fuser = fused{}
