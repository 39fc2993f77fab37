//go:build blas && cgo

package cpu

// #include "dynmo_cpu.h"
import "C"

import (
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// EmbeddingForward: see kernel.Backend. It panics if a token or position is not in its table.
func (k *Backend) EmbeddingForward(_ device.Stream, out, tokens, positions, wte, wpe tensor.Mem, n, c int) {
	k.check.EmbeddingForward(out, tokens, positions, wte, wpe, n, c)
	must(C.dynmo_cpu_embedding_forward(k.c, floats(out), ints(tokens), ints(positions), floats(wte), floats(wpe),
		size(n), size(c), rows(wte, c), rows(wpe, c)))
}

// EmbeddingBackward: see kernel.Backend. It panics if a token or position is not in its table.
func (k *Backend) EmbeddingBackward(_ device.Stream, dwte, dwpe, dout, tokens, positions tensor.Mem, n, c int) {
	k.check.EmbeddingBackward(dwte, dwpe, dout, tokens, positions, n, c)
	must(C.dynmo_cpu_embedding_backward(k.c, floats(dwte), floats(dwpe), floats(dout), ints(tokens), ints(positions),
		size(n), size(c), rows(dwte, c), rows(dwpe, c)))
}

// rows returns how many rows of c floats m holds.
func rows(m tensor.Mem, c int) C.int64_t {
	return C.int64_t(m.Bytes / (int64(c) * tensor.F32.Size()))
}

// LayerNormForward: see kernel.Backend.
func (k *Backend) LayerNormForward(_ device.Stream, out, mean, rstd, inp, weight, bias tensor.Mem, n, c int) {
	k.check.LayerNormForward(out, mean, rstd, inp, weight, bias, n, c)
	C.dynmo_cpu_layernorm_forward(k.c, floats(out), floats(mean), floats(rstd), floats(inp), floats(weight),
		floats(bias), size(n), size(c))
}

// LayerNormBackwardInput: see kernel.Backend.
func (k *Backend) LayerNormBackwardInput(_ device.Stream, dinp, dout, inp, mean, rstd, weight tensor.Mem, n, c int) {
	k.check.LayerNormBackwardInput(dinp, dout, inp, mean, rstd, weight, n, c)
	C.dynmo_cpu_layernorm_backward_input(k.c, floats(dinp), floats(dout), floats(inp), floats(mean), floats(rstd),
		floats(weight), size(n), size(c))
}

// LayerNormBackwardWeight: see kernel.Backend.
func (k *Backend) LayerNormBackwardWeight(_ device.Stream, dweight, dbias, dout, inp, mean, rstd tensor.Mem, n, c int) {
	k.check.LayerNormBackwardWeight(dweight, dbias, dout, inp, mean, rstd, n, c)
	C.dynmo_cpu_layernorm_backward_weight(k.c, floats(dweight), floats(dbias), floats(dout), floats(inp),
		floats(mean), floats(rstd), size(n), size(c))
}

// AttentionForward: see kernel.Backend. It panics if the offsets are not as they say.
func (k *Backend) AttentionForward(_ device.Stream, out, lse, qkv, offsets tensor.Mem, b, longest, n, c, nh int) {
	k.check.AttentionForward(out, lse, qkv, offsets, b, longest, n, c, nh)
	work := k.room(C.dynmo_cpu_attention_work(k.c, size(longest)))
	must(C.dynmo_cpu_attention_forward(k.c, work, floats(out), floats(lse), floats(qkv), ints(offsets),
		size(b), size(longest), size(n), size(c), size(nh)))
}

// AttentionBackward: see kernel.Backend. It panics if the offsets are not as they say.
func (k *Backend) AttentionBackward(_ device.Stream, dqkv, dout, qkv, out, lse, offsets tensor.Mem, b, longest, n, c, nh int) {
	k.check.AttentionBackward(dqkv, dout, qkv, out, lse, offsets, b, longest, n, c, nh)
	work := k.room(C.dynmo_cpu_attention_work(k.c, size(longest)))
	must(C.dynmo_cpu_attention_backward(k.c, work, floats(dqkv), floats(dout), floats(qkv), floats(out), floats(lse),
		ints(offsets), size(b), size(longest), size(n), size(c), size(nh)))
}

// GELUForward: see kernel.Backend.
func (k *Backend) GELUForward(_ device.Stream, out, inp tensor.Mem, n int) {
	k.check.GELUForward(out, inp, n)
	C.dynmo_cpu_gelu_forward(k.c, floats(out), floats(inp), size(n))
}

// GELUBackward: see kernel.Backend.
func (k *Backend) GELUBackward(_ device.Stream, dinp, inp, dout tensor.Mem, n int) {
	k.check.GELUBackward(dinp, inp, dout, n)
	C.dynmo_cpu_gelu_backward(k.c, floats(dinp), floats(inp), floats(dout), size(n))
}

// Add: see kernel.Backend.
func (k *Backend) Add(_ device.Stream, out, a, b tensor.Mem, n int) {
	k.check.Add(out, a, b, n)
	C.dynmo_cpu_add(k.c, floats(out), floats(a), floats(b), size(n))
}

// Accumulate: see kernel.Backend.
func (k *Backend) Accumulate(s device.Stream, out, a, b tensor.Mem, n int) { k.Add(s, out, a, b, n) }

// SoftmaxMerge: see kernel.Backend. It panics if a target is negative.
func (k *Backend) SoftmaxMerge(_ device.Stream, out, before, logits, targets tensor.Mem, n, v, first int) {
	k.check.SoftmaxMerge(out, before, logits, targets, n, v, first)
	must(C.dynmo_cpu_softmax_merge(k.c, doubles(out), doubles(before), floats(logits), ints(targets),
		size(n), size(v), size(first)))
}

// SoftmaxGradient: see kernel.Backend. It panics if a target is negative.
func (k *Backend) SoftmaxGradient(_ device.Stream, logits, stats, targets tensor.Mem, scale float64, n, v, first int) {
	k.check.SoftmaxGradient(logits, stats, targets, n, v, first)
	must(C.dynmo_cpu_softmax_gradient(k.c, floats(logits), doubles(stats), ints(targets), C.double(scale),
		size(n), size(v), size(first)))
}

// CrossEntropy: see kernel.Backend. It panics if a target is not in [0, first+v).
func (k *Backend) CrossEntropy(_ device.Stream, loss, out, before, logits, targets tensor.Mem, scale float64, n, v, first int) {
	k.check.CrossEntropy(loss, out, before, logits, targets, n, v, first)
	must(C.dynmo_cpu_cross_entropy(k.c, doubles(loss), doubles(out), doubles(before), floats(logits), ints(targets),
		C.double(scale), size(n), size(v), size(first)))
}

var _ kernel.Backend = (*Backend)(nil)
