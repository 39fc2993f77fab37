//go:build cuda && cgo

package cuda

// #include "calls.h"
import "C"

import (
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// PrepareSpMM puts SpMMForward without a bias into a slot, by an algorithm of cuSPARSE's: 1
// to 3 of its CSR_ALG1 to CSR_ALG3, 0 its default. byRows says that inp lies as (w.Cols, n)
// and out as (w.Rows, n). Operands must stay until ForgetRivals.
func (k *backend) PrepareSpMM(s device.Stream, slot int, byRows bool, algorithm int, out, inp tensor.Mem, w kernel.CSR, n int) error {
	k.Verify(&kernel.Call{Op: kernel.SpMMForward, Dims: kernel.Dims{N: n, C: w.Cols, O: w.Rows, NNZ: w.NNZ},
		Mem: kernel.Operands{out, inp, w.RowPtr, w.ColIdx, w.Values}})
	p := entries(C.DYNMO_CUDA_RIVAL_SPMM, byRows, w, n)
	p.algorithm, p.out, p.inp, p.values = C.int32_t(algorithm), out.Ptr, inp.Ptr, w.Values.Ptr
	return k.prepare(s, slot, &p)
}

// PrepareSDDMM is PrepareSpMM of SDDMM without a bias; byRows says that dout lies as
// (w.Rows, n) and inp as (w.Cols, n).
func (k *backend) PrepareSDDMM(s device.Stream, slot int, byRows bool, dvalues, dout, inp tensor.Mem, w kernel.CSR, n int) error {
	k.Verify(&kernel.Call{Op: kernel.SDDMM, Dims: kernel.Dims{N: n, C: w.Cols, O: w.Rows, NNZ: w.NNZ},
		Mem: kernel.Operands{dvalues, {}, dout, inp, w.RowPtr, w.ColIdx}})
	p := entries(C.DYNMO_CUDA_RIVAL_SDDMM, byRows, w, n)
	p.values, p.dout, p.inp = dvalues.Ptr, dout.Ptr, inp.Ptr
	return k.prepare(s, slot, &p)
}

// PrepareTF32 is PrepareSpMM of MatmulForward without a bias, by cuBLASLt in TF32.
func (k *backend) PrepareTF32(s device.Stream, slot int, out, inp, weight tensor.Mem, n, c, o int) error {
	k.Verify(&kernel.Call{Op: kernel.MatmulForward, Dims: kernel.Dims{N: n, C: c, O: o}, Mem: kernel.Operands{out, inp, weight}})
	return k.prepare(s, slot, &C.dynmo_cuda_rival{
		product: C.DYNMO_CUDA_RIVAL_TF32, out: out.Ptr, inp: inp.Ptr, values: weight.Ptr, n: size(n), cols: size(c), rows: size(o),
	})
}

// entries returns a product with a pattern.
func entries(product C.int32_t, byRows bool, w kernel.CSR, n int) C.dynmo_cuda_rival {
	return C.dynmo_cuda_rival{
		product: product, by_rows: truth(byRows), row: (*C.int32_t)(w.RowPtr.Ptr), col: (*C.int32_t)(w.ColIdx.Ptr),
		n: size(n), rows: size(w.Rows), cols: size(w.Cols), nnz: size(w.NNZ),
	}
}

func (k *backend) prepare(s device.Stream, slot int, p *C.dynmo_cuda_rival) error {
	if slot < 0 || slot >= C.DYNMO_CUDA_RIVALS {
		panic("cuda: a rival's slot is out of range")
	}
	return k.failure("rival", C.call_rival_prepare(k.table, k.c, handle(s), C.int32_t(slot), p))
}

// RunRival enqueues the product of a slot.
func (k *backend) RunRival(s device.Stream, slot int) {
	k.enqueued(s, "rival", C.call_rival_run(k.table, k.c, handle(s), C.int32_t(slot)))
}

// ForgetRivals empties the slots; their products must be over.
func (k *backend) ForgetRivals() error { return k.failure("rival", C.call_rival_forget(k.table, k.c)) }
