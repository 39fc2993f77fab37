//go:build cuda && cgo

package cuda

// #include "calls.h"
import "C"

import (
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// MatmulForward: see kernel.Backend.
func (k *Backend) MatmulForward(s device.Stream, out, inp, weight, bias tensor.Mem, n, c, o int) {
	k.check.MatmulForward(out, inp, weight, bias, n, c, o)
	k.enqueued(s, "MatmulForward", C.call_matmul_forward(k.table, k.c, handle(s), out.Ptr, inp.Ptr, weight.Ptr, bias.Ptr,
		nil, size(n), size(c), size(o)))
}

// MatmulBackwardInput: see kernel.Backend.
func (k *Backend) MatmulBackwardInput(s device.Stream, dinp, dout, weight tensor.Mem, n, c, o int) {
	k.check.MatmulBackwardInput(dinp, dout, weight, n, c, o)
	k.enqueued(s, "MatmulBackwardInput", C.call_matmul_backward_input(k.table, k.c, handle(s), dinp.Ptr, dout.Ptr,
		weight.Ptr, size(n), size(c), size(o)))
}

// MatmulBackwardWeight: see kernel.Backend.
func (k *Backend) MatmulBackwardWeight(s device.Stream, dweight, dbias, dout, inp tensor.Mem, n, c, o int) {
	k.check.MatmulBackwardWeight(dweight, dbias, dout, inp, n, c, o)
	k.enqueued(s, "MatmulBackwardWeight", C.call_matmul_backward_weight(k.table, k.c, handle(s), floats(dweight),
		floats(dbias), dout.Ptr, inp.Ptr, size(n), size(c), size(o)))
}

// SpMMForward: see kernel.Backend.
func (k *Backend) SpMMForward(s device.Stream, out, inp tensor.Mem, w kernel.CSR, bias tensor.Mem, n int) {
	k.check.SpMMForward(out, inp, w, bias, n)
	k.enqueued(s, "SpMMForward", C.call_spmm_forward(k.table, k.c, handle(s), out.Ptr, inp.Ptr, ints(w.RowPtr),
		ints(w.ColIdx), w.Values.Ptr, bias.Ptr, size(n), size(w.Rows), size(w.Cols), size(w.NNZ)))
}

// SpMMBackwardInput: see kernel.Backend.
func (k *Backend) SpMMBackwardInput(s device.Stream, dinp, dout tensor.Mem, w kernel.CSR, n int) {
	k.check.SpMMBackwardInput(dinp, dout, w, n)
	k.enqueued(s, "SpMMBackwardInput", C.call_spmm_backward_input(k.table, k.c, handle(s), dinp.Ptr, dout.Ptr,
		ints(w.RowPtr), ints(w.ColIdx), w.Values.Ptr, size(n), size(w.Rows), size(w.Cols), size(w.NNZ)))
}

// SDDMM: see kernel.Backend.
func (k *Backend) SDDMM(s device.Stream, dvalues, dbias, dout, inp tensor.Mem, w kernel.CSR, n int) {
	k.check.SDDMM(dvalues, dbias, dout, inp, w, n)
	k.enqueued(s, "SDDMM", C.call_sddmm(k.table, k.c, handle(s), floats(dvalues), floats(dbias), dout.Ptr, inp.Ptr,
		ints(w.RowPtr), ints(w.ColIdx), size(n), size(w.Rows), size(w.Cols), size(w.NNZ)))
}

// SpMMByCUSPARSE is SpMMForward without a bias by NVIDIA's library: what
// SpMMForward is measured against.
func (k *Backend) SpMMByCUSPARSE(s device.Stream, out, inp tensor.Mem, w kernel.CSR, n int) {
	k.check.SpMMForward(out, inp, w, tensor.Mem{}, n)
	k.enqueued(s, "SpMMByCUSPARSE", C.call_spmm_cusparse(k.table, k.c, handle(s), out.Ptr, inp.Ptr, ints(w.RowPtr),
		ints(w.ColIdx), w.Values.Ptr, size(n), size(w.Rows), size(w.Cols), size(w.NNZ)))
}
