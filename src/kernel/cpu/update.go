//go:build blas && cgo

package cpu

// #include "dynmo_cpu.h"
import "C"

import (
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// SumSquares: see kernel.Backend. All paths give the same bits.
func (k *Backend) SumSquares(_ device.Stream, out, x tensor.Mem, n int) {
	k.check.SumSquares(out, x, n)
	*doubles(out) = C.dynmo_cpu_sum_squares(k.c, k.room(C.dynmo_cpu_sum_squares_work(size(n))), floats(x), size(n))
}

// AdamW: see kernel.Backend.
func (k *Backend) AdamW(_ device.Stream, w, master, m, v, g tensor.Mem, n int, a kernel.AdamW) {
	k.check.AdamW(w, master, m, v, g, n, a)
	update := func(lo, hi int, decay float64) {
		at := func(x tensor.Mem) *C.float { return floats(x.Span(4*int64(lo), 4*int64(hi-lo))) }
		if lo < hi {
			C.dynmo_cpu_adamw(k.c, at(w), at(m), at(v), at(g), size(hi-lo), C.double(a.LR), C.double(a.Beta1),
				C.double(a.Beta2), C.double(a.Eps), C.double(decay), C.double(a.GradScale), C.int64_t(a.Step))
		}
	}
	update(0, a.Decayed, a.Decay)
	update(a.Decayed, n, 0)
}

// Mask: see kernel.Backend.
func (k *Backend) Mask(_ device.Stream, x, mask tensor.Mem, n int) {
	k.check.Mask(x, mask, n)
	C.dynmo_cpu_mask(k.c, floats(x), words(mask), size(n))
}

// MagnitudeHistogram: see kernel.Backend.
func (k *Backend) MagnitudeHistogram(_ device.Stream, hist, x, mask tensor.Mem, n int, prefix uint32, fixed int) {
	k.check.MagnitudeHistogram(hist, x, mask, n, prefix, fixed)
	C.dynmo_cpu_magnitude_histogram(k.c, counts(hist), floats(x), words(mask), size(n), C.uint32_t(prefix),
		C.int32_t(fixed))
}
