//go:build cuda && cgo

package cuda

// #include "calls.h"
import "C"

import (
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// EmbeddingForward: see kernel.Backend.
func (k *Backend) EmbeddingForward(s device.Stream, out, tokens, positions, wte, wpe tensor.Mem, n, c int) {
	k.check.EmbeddingForward(out, tokens, positions, wte, wpe, n, c)
	k.enqueued(s, "EmbeddingForward", C.call_embedding_forward(k.table, k.c, handle(s), out.Ptr, ints(tokens),
		ints(positions), wte.Ptr, wpe.Ptr, size(n), size(c)))
}

// EmbeddingBackward: see kernel.Backend.
func (k *Backend) EmbeddingBackward(s device.Stream, dwte, dwpe, dout, tokens, positions tensor.Mem, n, c int) {
	k.check.EmbeddingBackward(dwte, dwpe, dout, tokens, positions, n, c)
	k.enqueued(s, "EmbeddingBackward", C.call_embedding_backward(k.table, k.c, handle(s), floats(dwte), floats(dwpe),
		dout.Ptr, ints(tokens), ints(positions), size(n), size(c)))
}

// LayerNormForward: see kernel.Backend.
func (k *Backend) LayerNormForward(s device.Stream, out, mean, rstd, inp, weight, bias tensor.Mem, n, c int) {
	k.check.LayerNormForward(out, mean, rstd, inp, weight, bias, n, c)
	k.enqueued(s, "LayerNormForward", C.call_layernorm_forward(k.table, k.c, handle(s), out.Ptr, floats(mean),
		floats(rstd), inp.Ptr, weight.Ptr, bias.Ptr, size(n), size(c)))
}

// LayerNormBackwardInput: see kernel.Backend.
func (k *Backend) LayerNormBackwardInput(s device.Stream, dinp, dout, inp, mean, rstd, weight tensor.Mem, n, c int) {
	k.check.LayerNormBackwardInput(dinp, dout, inp, mean, rstd, weight, n, c)
	k.enqueued(s, "LayerNormBackwardInput", C.call_layernorm_backward_input(k.table, k.c, handle(s), dinp.Ptr, dinp.Ptr,
		dout.Ptr, inp.Ptr, floats(mean), floats(rstd), weight.Ptr, size(n), size(c)))
}

// LayerNormBackwardWeight: see kernel.Backend.
func (k *Backend) LayerNormBackwardWeight(s device.Stream, dweight, dbias, dout, inp, mean, rstd tensor.Mem, n, c int) {
	k.check.LayerNormBackwardWeight(dweight, dbias, dout, inp, mean, rstd, n, c)
	k.enqueued(s, "LayerNormBackwardWeight", C.call_layernorm_backward_weight(k.table, k.c, handle(s), floats(dweight),
		floats(dbias), dout.Ptr, inp.Ptr, floats(mean), floats(rstd), size(n), size(c)))
}

// AttentionForward: see kernel.Backend.
func (k *Backend) AttentionForward(s device.Stream, out, lse, qkv, offsets tensor.Mem, b, longest, n, c, nh int) {
	k.check.AttentionForward(out, lse, qkv, offsets, b, longest, n, c, nh)
	k.enqueued(s, "AttentionForward", C.call_attention_forward(k.table, k.c, handle(s), out.Ptr, floats(lse), qkv.Ptr,
		ints(offsets), size(b), size(longest), size(n), size(c), size(nh)))
}

// AttentionBackward: see kernel.Backend.
func (k *Backend) AttentionBackward(s device.Stream, dqkv, dout, qkv, out, lse, offsets tensor.Mem, b, longest, n, c, nh int) {
	k.check.AttentionBackward(dqkv, dout, qkv, out, lse, offsets, b, longest, n, c, nh)
	k.enqueued(s, "AttentionBackward", C.call_attention_backward(k.table, k.c, handle(s), dqkv.Ptr, dout.Ptr, qkv.Ptr,
		out.Ptr, floats(lse), ints(offsets), size(b), size(longest), size(n), size(c), size(nh)))
}

// GELUForward: see kernel.Backend.
func (k *Backend) GELUForward(s device.Stream, out, inp tensor.Mem, n int) {
	k.check.GELUForward(out, inp, n)
	k.enqueued(s, "GELUForward", C.call_gelu_forward(k.table, k.c, handle(s), out.Ptr, inp.Ptr, length(n)))
}

// GELUBackward: see kernel.Backend.
func (k *Backend) GELUBackward(s device.Stream, dinp, inp, dout tensor.Mem, n int) {
	k.check.GELUBackward(dinp, inp, dout, n)
	k.enqueued(s, "GELUBackward", C.call_gelu_backward(k.table, k.c, handle(s), dinp.Ptr, inp.Ptr, dout.Ptr, length(n)))
}

// Add: see kernel.Backend.
func (k *Backend) Add(s device.Stream, out, a, b tensor.Mem, n int) {
	k.check.Add(out, a, b, n)
	k.enqueued(s, "Add", C.call_add(k.table, k.c, handle(s), out.Ptr, a.Ptr, b.Ptr, length(n)))
}

// SoftmaxMerge: see kernel.Backend.
func (k *Backend) SoftmaxMerge(s device.Stream, out, before, logits, targets tensor.Mem, n, v, first int) {
	k.check.SoftmaxMerge(out, before, logits, targets, n, v, first)
	k.enqueued(s, "SoftmaxMerge", C.call_softmax_merge(k.table, k.c, handle(s), doubles(out), doubles(before), logits.Ptr,
		ints(targets), size(n), size(v), size(first)))
}

// SoftmaxGradient: see kernel.Backend.
func (k *Backend) SoftmaxGradient(s device.Stream, logits, stats, targets tensor.Mem, scale float64, n, v, first int) {
	k.check.SoftmaxGradient(logits, stats, targets, n, v, first)
	k.enqueued(s, "SoftmaxGradient", C.call_softmax_gradient(k.table, k.c, handle(s), logits.Ptr, doubles(stats),
		ints(targets), C.double(scale), size(n), size(v), size(first)))
}

// CrossEntropy: see kernel.Backend.
func (k *Backend) CrossEntropy(s device.Stream, loss, out, before, logits, targets tensor.Mem, scale float64, n, v, first int) {
	k.check.CrossEntropy(loss, out, before, logits, targets, n, v, first)
	k.enqueued(s, "CrossEntropy", C.call_cross_entropy(k.table, k.c, handle(s), doubles(loss), doubles(out),
		doubles(before), logits.Ptr, ints(targets), C.double(scale), size(n), size(v), size(first)))
}

var _ kernel.Backend = (*Backend)(nil)
