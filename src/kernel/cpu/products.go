//go:build blas && cgo

package cpu

// #include "dynmo_cpu.h"
import "C"

import (
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// Sgemm sets out to inp·weightᵀ, all (n, n), by one call of the BLAS with
// threads of its own: what products are measured against. Nothing else of the
// process may compute meanwhile.
func (k *Backend) Sgemm(threads int, out, inp, weight tensor.Mem, n int) {
	k.check.MatmulForward(out, inp, weight, tensor.Mem{}, n, n, n)
	C.dynmo_cpu_sgemm(C.int32_t(threads), floats(out), floats(inp), floats(weight), size(n))
}

// MatmulForward: see kernel.Backend.
func (k *Backend) MatmulForward(_ device.Stream, out, inp, weight, bias tensor.Mem, n, c, o int) {
	k.check.MatmulForward(out, inp, weight, bias, n, c, o)
	C.dynmo_cpu_matmul_forward(k.c, floats(out), floats(inp), floats(weight), floats(bias),
		size(n), size(c), size(o))
}

// MatmulBackwardInput: see kernel.Backend.
func (k *Backend) MatmulBackwardInput(_ device.Stream, dinp, dout, weight tensor.Mem, n, c, o int) {
	k.check.MatmulBackwardInput(dinp, dout, weight, n, c, o)
	C.dynmo_cpu_matmul_backward_input(k.c, floats(dinp), floats(dout), floats(weight), size(n), size(c), size(o))
}

// MatmulBackwardWeight: see kernel.Backend.
func (k *Backend) MatmulBackwardWeight(_ device.Stream, dweight, dbias, dout, inp tensor.Mem, n, c, o int) {
	k.check.MatmulBackwardWeight(dweight, dbias, dout, inp, n, c, o)
	C.dynmo_cpu_matmul_backward_weight(k.c, floats(dweight), floats(dbias), floats(dout), floats(inp),
		size(n), size(c), size(o))
}

// SpMMForward: see kernel.Backend.
func (k *Backend) SpMMForward(_ device.Stream, out, inp tensor.Mem, w kernel.CSR, bias tensor.Mem, n int) {
	k.check.SpMMForward(out, inp, w, bias, n)
	C.dynmo_cpu_spmm_forward(k.c, k.sparseWork(w), floats(out), floats(inp), ints(w.RowPtr), ints(w.ColIdx), floats(w.Values),
		floats(bias), size(w.Rows), size(w.Cols), size(n))
}

// SpMMBackwardInput: see kernel.Backend.
func (k *Backend) SpMMBackwardInput(_ device.Stream, dinp, dout tensor.Mem, w kernel.CSR, n int) {
	k.check.SpMMBackwardInput(dinp, dout, w, n)
	C.dynmo_cpu_spmm_backward_input(k.c, k.sparseWork(w), floats(dinp), floats(dout), ints(w.RowPtr), ints(w.ColIdx),
		floats(w.Values), size(w.Rows), size(w.Cols), size(n))
}

// SDDMM: see kernel.Backend.
func (k *Backend) SDDMM(_ device.Stream, dvalues, dbias, dout, inp tensor.Mem, w kernel.CSR, n int) {
	k.check.SDDMM(dvalues, dbias, dout, inp, w, n)
	C.dynmo_cpu_sddmm(k.c, k.sparseWork(w), floats(dvalues), floats(dbias), floats(dout), floats(inp), ints(w.RowPtr),
		ints(w.ColIdx), size(w.Rows), size(w.Cols), size(n))
}

// sparseWork returns the workspace of a call with w.
func (k *Backend) sparseWork(w kernel.CSR) *C.float {
	return k.room(C.dynmo_cpu_spmm_work(k.c, size(w.Rows), size(w.Cols), size(w.NNZ)))
}
