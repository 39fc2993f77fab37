//go:build cuda && cgo

package cuda

// #include "calls.h"
import "C"

import (
	"unsafe"

	"dynmo/src/device"
	"dynmo/src/kernel"
)

// do enqueues a call on s.
func (k *backend) do(s device.Stream, call *kernel.Call) {
	x := func(i int) unsafe.Pointer { return call.Mem[i].Ptr }
	floats := func(i int) *C.float { return (*C.float)(x(i)) }
	doubles := func(i int) *C.double { return (*C.double)(x(i)) }
	indices := func(i int) *C.int32_t { return (*C.int32_t)(x(i)) }
	longs := func(i int) *C.int64_t { return (*C.int64_t)(x(i)) }
	words := func(i int) *C.uint64_t { return (*C.uint64_t)(x(i)) }
	c, o, v, nnz := size(call.C), size(call.O), size(call.V), size(call.NNZ)
	b, longest, nh, kv := size(call.B), size(call.Longest), size(call.NH), size(call.KV)
	buckets := size(call.Buckets)
	first, scale, a, d := size(call.First), C.double(call.Scale), &call.AdamW, &call.Depths
	length := C.int64_t(call.N) // of an element-wise call, which may have more than 2^31
	rows := func() C.int32_t { return size(call.N) }
	stride := C.int64_t(call.O*call.C + call.Gap) // of the matrices of experts
	t, h, stream := k.table, k.c, handle(s)
	var status, blocks C.int32_t
	if call.Blocks {
		blocks = 1
	}
	switch call.Op {
	case kernel.EmbeddingForward:
		status = C.call_embedding_forward(t, h, stream, x(0), indices(1), indices(2), x(3), x(4), rows(), c)
	case kernel.EmbeddingBackward:
		status = C.call_embedding_backward(t, h, stream, floats(0), floats(1), x(2), indices(3), indices(4), rows(), c)
	case kernel.NormForward:
		status = C.call_norm_forward(t, h, stream, x(0), floats(1), floats(2), x(3), x(4), x(5), rows(), c, C.double(call.Eps))
	case kernel.NormBackwardInput:
		status = C.call_norm_backward_input(t, h, stream, x(0), x(0), x(1), x(2), floats(3), floats(4), x(5), rows(), c)
	case kernel.NormBackwardInputTo:
		status = C.call_norm_backward_input(t, h, stream, x(0), x(1), x(2), x(3), floats(4), floats(5), x(6), rows(), c)
	case kernel.NormBackwardWeight:
		status = C.call_norm_backward_weight(t, h, stream, floats(0), floats(1), x(2), x(3), floats(4), floats(5), rows(), c)
	case kernel.MatmulForward:
		status = C.call_matmul_forward(t, h, stream, x(0), x(1), x(2), x(3), nil, rows(), c, o)
	case kernel.MatmulForwardAdd:
		status = C.call_matmul_forward(t, h, stream, x(0), x(1), x(2), x(3), x(4), rows(), c, o)
	case kernel.MatmulForwardGELU:
		status = C.call_matmul_gelu(t, h, stream, x(0), x(1), x(2), x(3), x(4), rows(), c, o)
	case kernel.MatmulBackwardInput:
		status = C.call_matmul_backward_input(t, h, stream, x(0), x(1), x(2), rows(), c, o)
	case kernel.MatmulBackwardGELU:
		status = C.call_matmul_backward_gelu(t, h, stream, x(0), x(1), x(2), x(3), rows(), c, o)
	case kernel.MatmulBackwardWeight:
		status = C.call_matmul_backward_weight(t, h, stream, floats(0), floats(1), x(2), x(3), rows(), c, o)
	case kernel.SpMMForward:
		status = C.call_spmm_forward(t, h, stream, x(0), x(1), indices(2), indices(3), x(4), x(5), rows(), o, c, nnz, blocks)
	case kernel.SpMMBackwardInput:
		status = C.call_spmm_backward_input(t, h, stream, x(0), x(1), indices(2), indices(3), x(4), rows(), o, c, nnz, blocks)
	case kernel.SDDMM:
		status = C.call_sddmm(t, h, stream, floats(0), floats(1), x(2), x(3), indices(4), indices(5), rows(), o, c, nnz, blocks)
	case kernel.Rotary:
		status = C.call_rotary(t, h, stream, x(0), indices(1), floats(2), rows(), nh, c, size(call.HS), truth(call.Inverse))
	case kernel.AttentionForward:
		status = C.call_attention_forward(t, h, stream, x(0), floats(1), x(2), indices(3), b, longest, rows(), c, nh, kv)
	case kernel.AttentionBackward:
		status = C.call_attention_backward(t, h, stream, x(0), x(1), x(2), x(3), floats(4), indices(5), b, longest, rows(), c, nh, kv)
	case kernel.AttentionHash:
		status = C.call_attention_hash(t, h, stream, indices(0), indices(1), doubles(2), x(3), indices(4), floats(5), truth(call.Shared),
			buckets, b, longest, rows(), c, nh)
	case kernel.ShareKeys:
		status = C.call_share_keys(t, h, stream, x(0), x(1), rows(), c, nh)
	case kernel.ShareKeysGradient:
		status = C.call_share_keys_gradient(t, h, stream, x(0), x(1), x(2), rows(), c, nh)
	case kernel.SparseAttentionForward:
		status = C.call_sparse_attention_forward(t, h, stream, x(0), floats(1), x(2), indices(3), indices(4), indices(5), buckets,
			b, longest, rows(), c, nh)
	case kernel.SparseAttentionBackward:
		status = C.call_sparse_attention_backward(t, h, stream, x(0), x(1), x(2), x(3), floats(4), indices(5), indices(6), indices(7),
			buckets, b, longest, rows(), c, nh)
	case kernel.GELUForward:
		status = C.call_gelu_forward(t, h, stream, x(0), x(1), length)
	case kernel.GELUBackward:
		status = C.call_gelu_backward(t, h, stream, x(0), x(1), x(2), length)
	case kernel.SwiGLUForward:
		status = C.call_swiglu_forward(t, h, stream, x(0), x(1), rows(), c)
	case kernel.SwiGLUBackward:
		status = C.call_swiglu_backward(t, h, stream, x(0), x(1), x(2), rows(), c)
	case kernel.Add:
		status = C.call_add(t, h, stream, x(0), x(1), x(2), length)
	case kernel.Accumulate:
		status = C.call_accumulate(t, h, stream, floats(0), floats(1), floats(2), length)
	case kernel.Round:
		status = C.call_round(t, h, stream, x(0), floats(1), length)
	case kernel.AccumulateRounded:
		status = C.call_accumulate_rounded(t, h, stream, floats(0), floats(1), x(2), length)
	case kernel.AccumulateFixed:
		status = C.call_accumulate_fixed(t, h, stream, longs(0), floats(1), length)
	case kernel.AddFixed:
		status = C.call_add_fixed(t, h, stream, longs(0), longs(1), length)
	case kernel.RoundFixed:
		status = C.call_round_fixed(t, h, stream, floats(0), longs(1), length)
	case kernel.SoftmaxMerge:
		status = C.call_softmax_merge(t, h, stream, doubles(0), doubles(1), x(2), indices(3), rows(), v, first)
	case kernel.SoftmaxGradient:
		status = C.call_softmax_gradient(t, h, stream, x(0), doubles(1), indices(2), scale, rows(), v, first)
	case kernel.CrossEntropy:
		status = C.call_cross_entropy(t, h, stream, doubles(0), doubles(1), doubles(2), x(3), indices(4), scale, rows(), v, first)
	case kernel.Likeliest:
		status = C.call_likeliest(t, h, stream, indices(0), x(1), rows(), v)
	case kernel.GatherRows:
		status = C.call_gather_rows(t, h, stream, x(0), x(1), indices(2), floats(3), rows(), c)
	case kernel.ScatterRows:
		status = C.call_scatter_rows(t, h, stream, x(0), x(1), indices(2), floats(3), floats(4), rows(), c)
	case kernel.GateGradient:
		status = C.call_gate_gradient(t, h, stream, x(0), x(1), x(2), x(3), indices(4), floats(5), rows(), c)
	case kernel.CombineRows:
		status = C.call_combine_rows(t, h, stream, x(0), x(1), indices(2), floats(3), nil, rows(), size(call.K), c)
	case kernel.CombineRowsAdd:
		status = C.call_combine_rows(t, h, stream, x(0), x(1), indices(2), floats(3), x(4), rows(), size(call.K), c)
	case kernel.CombineGradient:
		status = C.call_combine_gradient(t, h, stream, floats(0), x(1), x(2), indices(3), rows(), size(call.K), c)
	case kernel.TakeTokens:
		status = C.call_take_tokens(t, h, stream, indices(0), doubles(1), x(2), x(3), x(4), x(5), indices(6), rows(), b,
			C.double(d.Capacity), C.double(d.Threshold), C.double(d.Router), C.double(d.Predictor))
	case kernel.ListTokens:
		status = C.call_list_tokens(t, h, stream, indices(0), floats(1), indices(2), indices(3), indices(4), x(5), indices(6), indices(7),
			rows(), b, size(call.K), truth(d.One))
	case kernel.SquashLogits:
		status = C.call_squash_logits(t, h, stream, doubles(0), x(1), x(2), x(3), rows(), size(call.E))
	case kernel.SquashGradient:
		status = C.call_squash_gradient(t, h, stream, x(0), x(1), x(2), x(3), rows(), size(call.E))
	case kernel.BalanceScores:
		status = C.call_balance_scores(t, h, stream, doubles(0), x(1), C.double(call.Routing.Deviation), size(call.Routing.Rounds), rows(), size(call.E))
	case kernel.RouteTokens:
		status = C.call_route_tokens(t, h, stream, indices(0), floats(1), doubles(2), doubles(3), x(4), doubles(5), rows(), size(call.E),
			size(call.K), size(call.Routing.Room), truth(call.Routing.Shares), C.double(call.Routing.Scale), C.double(call.Routing.Auxiliary),
			C.double(call.Routing.Z))
	case kernel.RouteGradient:
		status = C.call_route_gradient(t, h, stream, x(0), floats(1), indices(2), doubles(3), rows(), size(call.E), size(call.K),
			C.double(call.Routing.Scale), C.double(call.Routing.Loss))
	case kernel.PlaceTokens:
		status = C.call_place_tokens(t, h, stream, indices(0), indices(1), floats(2), indices(3), indices(4), floats(5), rows(),
			size(call.E), size(call.K), first)
	case kernel.GroupedForward:
		status = C.call_grouped_forward(t, h, stream, x(0), x(1), x(2), indices(3), rows(), c, o, size(call.E), stride)
	case kernel.GroupedBackwardInput:
		status = C.call_grouped_backward_input(t, h, stream, x(0), x(1), x(2), indices(3), rows(), c, o, size(call.E), stride)
	case kernel.GroupedBackwardWeight:
		status = C.call_grouped_backward_weight(t, h, stream, floats(0), x(1), x(2), indices(3), rows(), c, o, size(call.E), stride)
	case kernel.SumSquares:
		status = C.call_sum_squares(t, h, stream, doubles(0), floats(1), length)
	case kernel.AdamWUpdate:
		status = C.call_adamw(t, h, stream, x(0), floats(1), floats(2), floats(3), floats(4), length, C.int64_t(a.Decayed),
			C.double(a.LR), C.double(a.Beta1), C.double(a.Beta2), C.double(a.Eps), C.double(a.Decay), C.double(a.GradScale),
			size(a.Step))
	case kernel.Mask:
		status = C.call_mask(t, h, stream, floats(0), words(1), length)
	case kernel.MagnitudeHistogram:
		status = C.call_magnitude_histogram(t, h, stream, longs(0), floats(1), words(2), length,
			C.uint32_t(call.Prefix), size(call.Fixed))
	case kernel.MaskWeights:
		status = C.call_mask_weights(t, h, stream, x(0), words(1), length)
	case kernel.SelectLargest:
		status = C.call_select_largest(t, h, stream, words(0), floats(1), words(2), length, C.uint32_t(call.Prefix), C.int64_t(call.Ties))
	case kernel.MaskRanks:
		status = C.call_mask_ranks(t, h, stream, indices(0), words(1), length)
	case kernel.Compact:
		status = C.call_compact(t, h, stream, x(0), x(1), words(2), indices(3), length)
	case kernel.CompactWide:
		status = C.call_compact_wide(t, h, stream, floats(0), floats(1), words(2), indices(3), length)
	case kernel.CompactRows:
		status = C.call_compact_rows(t, h, stream, indices(0), indices(1), indices(2), indices(3), words(4), indices(5), o, c)
	case kernel.BlockScores:
		status = C.call_block_scores(t, h, stream, floats(0), floats(1), words(2), indices(3), c, o, nnz)
	case kernel.BlockMask:
		status = C.call_block_mask(t, h, stream, words(0), words(1), indices(2), c, o, nnz)
	case kernel.PairScores:
		status = C.call_pair_scores(t, h, stream, floats(0), floats(1), words(2), length)
	case kernel.PairMask:
		status = C.call_pair_mask(t, h, stream, words(0), floats(1), words(2), words(3), length)
	default:
		panic("cuda: no case for " + call.Op.String())
	}
	k.enqueued(s, call.Op.String(), status)
}

// truth returns 1 of true, 0 of false.
func truth(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}

var _ kernel.Backend = (*backend)(nil)
