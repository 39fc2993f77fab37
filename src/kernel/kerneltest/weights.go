package kerneltest

import (
	"fmt"
	"math"
	"math/big"
	"slices"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// sumSquares adds in float64 whatever the element type, so that its bound is
// far below the tolerance: 1e-12 of the largest sum.
func (of maker) sumSquares(n int) example {
	x := of.example(kernel.Call{Op: kernel.SumSquares, Dims: kernel.Dims{N: n}}, "", nil,
		func(_ kernel.Call, x values) (want, bound values) {
			var sums []float64
			for block := range slices.Chunk(x["x"], kernel.SquareBlock) {
				sum := new(big.Float).SetPrec(200) // exact: squares of 48 bits, a range of 2^100
				for _, xi := range block {
					f := new(big.Float).SetPrec(200).SetFloat64(xi)
					sum.Add(sum, f.Mul(f, f))
				}
				total, _ := sum.Float64()
				sums = append(sums, total)
			}
			return values{"out": sums}, nil
		})
	if sums := x.operands[0].want; len(sums) > 0 {
		x.operands[0].slack = 1e-12 * slices.Max(sums)
	}
	return x
}

// adamW is several updates from new gradients, with the settings of GPT-2 and a
// gradient scale as clipping gives one. The wanted values follow the formula at
// kernel.AdamW; the bound grows with the terms of each step.
// The last third does not decay.
func (of maker) adamW(n, steps int) example {
	a := kernel.AdamW{LR: 6e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Decayed: n - n/3, GradScale: 0.3}
	r := of.draw(givenSeed)
	start := r.normal(n)
	var gradients []operand
	given := map[string]any{"w": start, "m": make([]float64, n), "v": make([]float64, n)}
	if of.dtype.Wide() != of.dtype {
		given["master"] = start
	}
	x := of.example(kernel.Call{Op: kernel.AdamWUpdate, Dims: kernel.Dims{N: n}}, fmt.Sprintf(",steps=%d", steps), given,
		func(kernel.Call, values) (want, bound values) {
			w, m, v := append([]float64(nil), start...), make([]float64, n), make([]float64, n)
			wBound, mBound := abs(start), make([]float64, n)
			for step := 1; step <= steps; step++ {
				g := r.normal(n)
				gradients = append(gradients, operand{name: "g", kind: kernel.Wide, data: g})
				mCorrection, vCorrection := 1-math.Pow(a.Beta1, float64(step)), 1-math.Pow(a.Beta2, float64(step))
				for i := range n {
					gi := a.GradScale * g[i]
					m[i] = a.Beta1*m[i] + (1-a.Beta1)*gi
					v[i] = a.Beta2*v[i] + (1-a.Beta2)*gi*gi
					mBound[i] = a.Beta1*mBound[i] + (1-a.Beta1)*math.Abs(gi)
					root := math.Sqrt(v[i]/vCorrection) + a.Eps
					decay := 0.0
					if i < a.Decayed {
						decay = a.Decay
					}
					wBound[i] += a.LR * (mBound[i]/mCorrection/root + decay*math.Abs(w[i]))
					w[i] -= a.LR * (m[i]/mCorrection/root + decay*w[i])
				}
			}
			return values{"w": w, "master": w, "m": m, "v": v}, values{"w": wBound, "master": wBound, "m": mBound, "v": v}
		})
	x.operands = append(x.operands[:4], gradients...)
	x.do = func(k kernel.Backend, s device.Stream, mem []tensor.Mem) {
		for step := 1; step <= steps; step++ {
			a.Step = step
			k.AdamW(s, mem[0], mem[1], mem[2], mem[3], mem[3+step], n, a)
		}
	}
	return x
}

func (of maker) masking(n int) example {
	mask := of.draw(givenSeed).bits(n, 0.5)
	return of.example(kernel.Call{Op: kernel.Mask, Dims: kernel.Dims{N: n}}, "", map[string]any{"mask": mask},
		func(_ kernel.Call, x values) (want, bound values) {
			masked := append([]float64(nil), x["x"]...)
			for i := range masked {
				if mask[i/64]&(1<<(i%64)) == 0 {
					masked[i] = 0
				}
			}
			return values{"x": masked}, nil
		})
}

// magnitudeHistogram counts by comparing magnitudes with the ends of each bin:
// bin h holds the float32 values of [first, next) whose bits begin with prefix
// and h.
func (of maker) magnitudeHistogram(n, fixed int, withMask bool) example {
	r := of.draw(givenSeed)
	x, hist, mask := ties(r, n), make([]int64, 256), []uint64(nil)
	if withMask {
		mask = r.bits(n, 0.7)
	}
	prefix := uint32(uint64(math.Float32bits(float32(math.Abs(x[n/2])))) >> (32 - fixed)) // some element's
	count := func(kernel.Call, values) (want, bound values) {
		counts := make([]float64, 256)
		for h := range counts {
			counts[h] = float64(hist[h])
			first := uint64(prefix)<<(32-fixed) | uint64(h)<<(24-fixed)
			next := first + 1<<(24-fixed)
			for i, xi := range x {
				bits := uint64(math.Float32bits(float32(math.Abs(xi))))
				if first <= bits && bits < next && (mask == nil || mask[i/64]&(1<<(i%64)) != 0) {
					counts[h]++
				}
			}
		}
		return values{"hist": counts}, nil
	}
	for h := range hist {
		hist[h] = int64(h % 3)
	}
	return of.example(kernel.Call{Op: kernel.MagnitudeHistogram, Dims: kernel.Dims{N: n}, Prefix: prefix, Fixed: fixed},
		fmt.Sprintf(",fixed=%d,mask=%t", fixed, withMask), map[string]any{"hist": hist, "x": x, "mask": mask}, count)
}

// ties returns n numbers. Many have the same magnitude, or the same first bits of it. Both zeros,
// infinity and the smallest float32 are among them.
func ties(r draw, n int) []float64 {
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
