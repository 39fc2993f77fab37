//go:build blas && cgo

package cpu

// #include "dynmo_cpu.h"
import "C"

import (
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// do works at once: the stream has nothing to wait for. It panics if an index is
// outside its table, or if offsets are not as kernel.Backend says.
func (k *backend) do(_ device.Stream, call *kernel.Call) {
	x := func(i int) *C.float { return (*C.float)(call.Mem[i].Ptr) }
	doubles := func(i int) *C.double { return (*C.double)(call.Mem[i].Ptr) }
	indices := func(i int) *C.int32_t { return (*C.int32_t)(call.Mem[i].Ptr) }
	longs := func(i int) *C.int64_t { return (*C.int64_t)(call.Mem[i].Ptr) }
	words := func(i int) *C.uint64_t { return (*C.uint64_t)(call.Mem[i].Ptr) }
	rows := func(i int) C.int64_t { return C.int64_t(call.Mem[i].Bytes / (int64(call.C) * tensor.F32.Size())) }
	n, c, o, v := C.int64_t(call.N), C.int64_t(call.C), C.int64_t(call.O), C.int64_t(call.V)
	b, longest, nh, kv := C.int64_t(call.B), C.int64_t(call.Longest), C.int64_t(call.NH), C.int64_t(call.KV)
	buckets := C.int64_t(call.Buckets)
	first, scale, a := C.int64_t(call.First), C.double(call.Scale), &call.AdamW
	status := C.int32_t(C.DYNMO_CPU_OK)
	if call.Op >= kernel.SpMMForward && call.Op <= kernel.SDDMM && call.Blocks {
		k.blocks(call)
		return
	}
	halves := func(i int) *C.uint16_t { return (*C.uint16_t)(call.Mem[i].Ptr) }
	switch call.Op {
	case kernel.EmbeddingForward:
		status = C.dynmo_cpu_embedding_forward(k.c, x(0), indices(1), indices(2), x(3), x(4), n, c, rows(3), rows(4))
	case kernel.EmbeddingBackward:
		status = C.dynmo_cpu_embedding_backward(k.c, x(0), x(1), x(2), indices(3), indices(4), n, c, rows(0), rows(1))
	case kernel.NormForward:
		C.dynmo_cpu_norm_forward(k.c, x(0), x(1), x(2), x(3), x(4), x(5), n, c, C.double(call.Eps))
	case kernel.NormBackwardInput:
		C.dynmo_cpu_norm_backward_input(k.c, x(0), x(1), x(2), x(3), x(4), x(5), n, c)
	case kernel.NormBackwardWeight:
		C.dynmo_cpu_norm_backward_weight(k.c, x(0), x(1), x(2), x(3), x(4), x(5), n, c)
	case kernel.MatmulForward:
		status = C.dynmo_cpu_matmul_forward(k.c, x(0), x(1), x(2), x(3), n, c, o)
	case kernel.MatmulBackwardInput:
		status = C.dynmo_cpu_matmul_backward_input(k.c, x(0), x(1), x(2), n, c, o)
	case kernel.MatmulBackwardWeight:
		status = C.dynmo_cpu_matmul_backward_weight(k.c, x(0), x(1), x(2), x(3), n, c, o)
	case kernel.SpMMForward:
		C.dynmo_cpu_spmm_forward(k.c, k.sparseWork(call), x(0), x(1), indices(2), indices(3), x(4), x(5), o, c, n)
	case kernel.SpMMBackwardInput:
		C.dynmo_cpu_spmm_backward_input(k.c, k.sparseWork(call), x(0), x(1), indices(2), indices(3), x(4), o, c, n)
	case kernel.SDDMM:
		C.dynmo_cpu_sddmm(k.c, k.sparseWork(call), x(0), x(1), x(2), x(3), indices(4), indices(5), o, c, n)
	case kernel.Rotary:
		places := C.int64_t(call.Mem[2].Bytes / (max(int64(call.HS), 1) * tensor.F32.Size()))
		status = C.dynmo_cpu_rotary(k.c, x(0), indices(1), x(2), n, nh, c, C.int64_t(call.HS), truth(call.Inverse), places)
	case kernel.AttentionForward:
		work := k.workspace(C.dynmo_cpu_attention_work(k.c, longest))
		status = C.dynmo_cpu_attention_forward(k.c, work, x(0), x(1), x(2), indices(3), b, longest, n, c, nh, kv)
	case kernel.AttentionBackward:
		work := k.workspace(C.dynmo_cpu_attention_work(k.c, longest))
		status = C.dynmo_cpu_attention_backward(k.c, work, x(0), x(1), x(2), x(3), x(4), indices(5), b, longest, n, c, nh, kv)
	case kernel.AttentionHash:
		work := k.workspace(C.dynmo_cpu_attention_hash_work(k.c, longest, buckets, b, nh))
		status = C.dynmo_cpu_attention_hash(k.c, work, indices(0), indices(1), doubles(2), x(3), indices(4), x(5),
			truth(call.Shared), buckets, b, longest, n, c, nh)
	case kernel.ShareKeys:
		C.dynmo_cpu_share_keys(k.c, x(0), x(1), n, c, nh)
	case kernel.ShareKeysGradient:
		C.dynmo_cpu_share_keys_gradient(k.c, x(0), x(1), x(2), n, c, nh)
	case kernel.SparseAttentionForward:
		work := k.workspace(C.dynmo_cpu_sparse_attention_work(k.c, longest, c, nh))
		status = C.dynmo_cpu_sparse_attention_forward(k.c, work, x(0), x(1), x(2), indices(3), indices(4), indices(5),
			buckets, b, longest, n, c, nh)
	case kernel.SparseAttentionBackward:
		work := k.workspace(C.dynmo_cpu_sparse_attention_work(k.c, longest, c, nh))
		status = C.dynmo_cpu_sparse_attention_backward(k.c, work, x(0), x(1), x(2), x(3), x(4), indices(5), indices(6), indices(7),
			buckets, b, longest, n, c, nh)
	case kernel.GELUForward:
		C.dynmo_cpu_gelu_forward(k.c, x(0), x(1), n)
	case kernel.GELUBackward:
		C.dynmo_cpu_gelu_backward(k.c, x(0), x(1), x(2), n)
	case kernel.SwiGLUForward:
		C.dynmo_cpu_swiglu_forward(k.c, x(0), x(1), n, c)
	case kernel.SwiGLUBackward:
		C.dynmo_cpu_swiglu_backward(k.c, x(0), x(1), x(2), n, c)
	case kernel.Add, kernel.Accumulate:
		C.dynmo_cpu_add(k.c, x(0), x(1), x(2), n)
	case kernel.Round:
		C.dynmo_cpu_round(k.c, halves(0), x(1), n)
	case kernel.AccumulateRounded:
		C.dynmo_cpu_add_rounded(k.c, x(0), x(1), halves(2), n)
	case kernel.AccumulateFixed:
		C.dynmo_cpu_accumulate_fixed(k.c, longs(0), x(1), n)
	case kernel.AddFixed:
		C.dynmo_cpu_add_fixed(k.c, longs(0), longs(1), n)
	case kernel.RoundFixed:
		C.dynmo_cpu_round_fixed(k.c, x(0), longs(1), n)
	case kernel.SoftmaxMerge:
		status = C.dynmo_cpu_softmax_merge(k.c, doubles(0), doubles(1), x(2), indices(3), n, v, first)
	case kernel.SoftmaxGradient:
		status = C.dynmo_cpu_softmax_gradient(k.c, x(0), doubles(1), indices(2), scale, n, v, first)
	case kernel.CrossEntropy:
		status = C.dynmo_cpu_cross_entropy(k.c, doubles(0), doubles(1), doubles(2), x(3), indices(4), scale, n, v, first)
	case kernel.Likeliest:
		C.dynmo_cpu_likeliest(k.c, indices(0), x(1), n, v)
	case kernel.GatherRows:
		status = C.dynmo_cpu_gather_rows(k.c, x(0), x(1), indices(2), x(3), n, c, rows(1))
	case kernel.ScatterRows:
		status = C.dynmo_cpu_scatter_rows(k.c, x(0), x(1), indices(2), x(3), x(4), n, c, rows(0))
	case kernel.GateGradient:
		status = C.dynmo_cpu_gate_gradient(k.c, x(0), x(1), x(2), x(3), indices(4), x(5), n, c, C.int64_t(call.Mem[0].Bytes/tensor.F32.Size()))
	case kernel.CombineRows:
		status = C.dynmo_cpu_combine_rows(k.c, x(0), x(1), indices(2), x(3), n, C.int64_t(call.K), c, rows(1))
	case kernel.CombineGradient:
		status = C.dynmo_cpu_combine_gradient(k.c, x(0), x(1), x(2), indices(3), n, C.int64_t(call.K), c, rows(2))
	case kernel.TakeTokens, kernel.ListTokens, kernel.SquashLogits, kernel.SquashGradient, kernel.BalanceScores, kernel.RouteTokens, kernel.RouteGradient, kernel.PlaceTokens:
		route(call)
	case kernel.GroupedForward, kernel.GroupedBackwardInput, kernel.GroupedBackwardWeight:
		status = k.group(call)
	case kernel.SumSquares: // all paths give the same bits
		C.dynmo_cpu_sum_squares(k.c, doubles(0), x(1), n)
	case kernel.AdamWUpdate:
		C.dynmo_cpu_adamw(k.c, x(0), x(2), x(3), x(4), n, C.int64_t(a.Decayed), C.double(a.LR), C.double(a.Beta1),
			C.double(a.Beta2), C.double(a.Eps), C.double(a.Decay), C.double(a.GradScale), C.int64_t(a.Step))
	case kernel.Mask:
		C.dynmo_cpu_mask(k.c, x(0), words(1), n)
	case kernel.MagnitudeHistogram:
		C.dynmo_cpu_magnitude_histogram(k.c, longs(0), x(1), words(2), n, C.uint32_t(call.Prefix),
			C.int32_t(call.Fixed))
	case kernel.MaskWeights:
		C.dynmo_cpu_mask(k.c, x(0), words(1), n)
	case kernel.SelectLargest:
		C.dynmo_cpu_select_largest(k.c, words(0), x(1), words(2), n, C.uint32_t(call.Prefix), C.int64_t(call.Ties))
	case kernel.MaskRanks:
		C.dynmo_cpu_mask_ranks(indices(0), words(1), n)
	case kernel.Compact, kernel.CompactWide:
		C.dynmo_cpu_compact(k.c, x(0), x(1), words(2), indices(3), n)
	case kernel.CompactRows:
		C.dynmo_cpu_compact_rows(k.c, indices(0), indices(1), indices(2), indices(3), words(4), indices(5), n, c, o)
	case kernel.BlockScores:
		C.dynmo_cpu_block_scores(k.c, x(0), x(1), words(2), indices(3), c, o)
	case kernel.BlockMask:
		C.dynmo_cpu_block_mask(k.c, words(0), words(1), indices(2), c, o)
	case kernel.PairScores:
		C.dynmo_cpu_pair_scores(k.c, x(0), x(1), words(2), n)
	case kernel.PairMask:
		C.dynmo_cpu_pair_mask(k.c, words(0), x(1), words(2), words(3), n)
	default:
		panic("cpu: no case for " + call.Op.String())
	}
	if status != C.DYNMO_CPU_OK {
		panic("cpu: " + call.Op.String() + ": " + C.GoString(C.dynmo_cpu_status_name(status)))
	}
}

// truth returns 1 of true, 0 of false.
func truth(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}

// sparseWork returns the workspace of a call with a sparse matrix.
func (k *backend) sparseWork(c *kernel.Call) *C.float {
	return k.workspace(C.dynmo_cpu_spmm_work(k.c, C.int64_t(c.O), C.int64_t(c.C), C.int64_t(c.NNZ)))
}

// blocks does a call with a sparse matrix of whole blocks.
func (k *backend) blocks(call *kernel.Call) {
	x := func(i int) *C.float { return (*C.float)(call.Mem[i].Ptr) }
	indices := func(i int) *C.int32_t { return (*C.int32_t)(call.Mem[i].Ptr) }
	n, rows, cols := C.int64_t(call.N), C.int64_t(call.O), C.int64_t(call.C)
	work := k.workspace(C.dynmo_cpu_blocks_work(rows, cols))
	switch call.Op {
	case kernel.SpMMForward:
		C.dynmo_cpu_blocks_forward(k.c, work, x(0), x(1), indices(2), indices(3), x(4), x(5), rows, cols, n)
	case kernel.SpMMBackwardInput:
		C.dynmo_cpu_blocks_backward_input(k.c, work, x(0), x(1), indices(2), indices(3), x(4), rows, cols, n)
	case kernel.SDDMM:
		C.dynmo_cpu_blocks_sample(k.c, work, x(0), x(1), x(2), x(3), indices(4), indices(5), rows, cols, n)
	}
}

// Sgemm sets out to inp·weightᵀ, all (n, n), by one call of the BLAS with
// threads of its own: the call that products are measured against. Nothing else of
// the process may compute meanwhile.
func (k *backend) Sgemm(threads int, out, inp, weight tensor.Mem, n int) {
	call := kernel.Call{Op: kernel.MatmulForward, Dims: kernel.Dims{N: n, C: n, O: n}, Mem: kernel.Operands{out, inp, weight}}
	k.Verify(&call)
	C.dynmo_cpu_sgemm(C.int32_t(threads), (*C.float)(out.Ptr), (*C.float)(inp.Ptr), (*C.float)(weight.Ptr), C.int64_t(n))
}

var _ kernel.Backend = (*backend)(nil)
