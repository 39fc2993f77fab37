//go:build cuda && cgo

package cuda

// #include "calls.h"
import "C"

import (
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// Accumulate: see kernel.Backend.
func (k *Backend) Accumulate(s device.Stream, out, a, b tensor.Mem, n int) {
	k.check.Accumulate(out, a, b, n)
	k.enqueued(s, "Accumulate", C.call_accumulate(k.table, k.c, handle(s), floats(out), floats(a), floats(b), length(n)))
}

// SumSquares: see kernel.Backend.
func (k *Backend) SumSquares(s device.Stream, out, x tensor.Mem, n int) {
	k.check.SumSquares(out, x, n)
	k.enqueued(s, "SumSquares", C.call_sum_squares(k.table, k.c, handle(s), doubles(out), floats(x), length(n)))
}

// AdamW: see kernel.Backend.
func (k *Backend) AdamW(s device.Stream, w, master, m, v, g tensor.Mem, n int, a kernel.AdamW) {
	k.check.AdamW(w, master, m, v, g, n, a)
	k.enqueued(s, "AdamW", C.call_adamw(k.table, k.c, handle(s), w.Ptr, floats(master), floats(m), floats(v), floats(g),
		length(n), length(a.Decayed), C.double(a.LR), C.double(a.Beta1), C.double(a.Beta2), C.double(a.Eps),
		C.double(a.Decay), C.double(a.GradScale), size(a.Step)))
}

// Mask: see kernel.Backend.
func (k *Backend) Mask(s device.Stream, x, mask tensor.Mem, n int) {
	k.check.Mask(x, mask, n)
	k.enqueued(s, "Mask", C.call_mask(k.table, k.c, handle(s), floats(x), words(mask), length(n)))
}

// MagnitudeHistogram: see kernel.Backend.
func (k *Backend) MagnitudeHistogram(s device.Stream, hist, x, mask tensor.Mem, n int, prefix uint32, fixed int) {
	k.check.MagnitudeHistogram(hist, x, mask, n, prefix, fixed)
	k.enqueued(s, "MagnitudeHistogram", C.call_magnitude_histogram(k.table, k.c, handle(s), counts(hist), floats(x),
		words(mask), length(n), C.uint32_t(prefix), size(fixed)))
}
