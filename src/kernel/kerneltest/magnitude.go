package kerneltest

import (
	"fmt"
	"math"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

func (of maker) masking(n int) call {
	r := of.draw()
	x, mask := r.normal(n), r.bits(n, 0.5)
	want := clone(x)
	for i := range want {
		if mask[i/64]&(1<<(i%64)) == 0 {
			want[i] = 0
		}
	}
	return call{
		fmt.Sprintf("Mask/n=%d", n),
		[]operand{addWide(x, want, nil), in(mask)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) { k.Mask(s, m[0], m[1], n) },
	}
}

// magnitudeHistogram counts by comparing magnitudes with the ends of each bin:
// bin h holds the float32 values of [first, next) whose bits begin with prefix
// and h.
func (of maker) magnitudeHistogram(n, fixed int, withMask bool) call {
	r := of.draw()
	x := ties(r, n)
	var mask []uint64
	if withMask {
		mask = r.bits(n, 0.7)
	}
	prefix := uint32(uint64(math.Float32bits(float32(math.Abs(x[n/2])))) >> (32 - fixed)) // some element's
	hist, want := make([]int64, 256), make([]float64, 256)
	for h := range hist {
		hist[h] = int64(h % 3)
		want[h] = float64(hist[h])
		first := uint64(prefix)<<(32-fixed) | uint64(h)<<(24-fixed)
		next := first + 1<<(24-fixed)
		for i, xi := range x {
			bits := uint64(math.Float32bits(float32(math.Abs(xi))))
			if first <= bits && bits < next && (mask == nil || mask[i/64]&(1<<(i%64)) != 0) {
				want[h]++
			}
		}
	}
	return call{
		fmt.Sprintf("MagnitudeHistogram/n=%d,fixed=%d,mask=%t", n, fixed, withMask),
		[]operand{{data: hist, want: want}, inWide(x), in(mask)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.MagnitudeHistogram(s, m[0], m[1], m[2], n, prefix, fixed)
		},
	}
}

// ties returns n numbers of which many share their magnitude or its first
// bits, with both zeros, infinity and the smallest float32 among them.
func ties(r draw, n int) floats {
	special := []float64{0, math.Copysign(0, -1), math.Inf(-1), math.SmallestNonzeroFloat32, -1, 1, math.MaxFloat32}
	x := r.normal(n)
	for i := range x {
		switch r.IntN(4) {
		case 0:
			x[i] = special[r.IntN(len(special))]
		case 1: // the last 6 bits of 0.7 at random
			x[i] = float64(math.Float32frombits(math.Float32bits(0.7)&^63 | uint32(r.IntN(64))))
		}
	}
	return x
}
