package kerneltest

import (
	"fmt"
	"math"
	"math/big"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// sumSquares adds in float64 whatever the element type, so that its bound is
// far below the tolerance: 1e-12 of the sum.
func (of maker) sumSquares(n int) call {
	x := of.draw().normal(n)
	sum := new(big.Float).SetPrec(200) // exact: squares of 48 bits, a range of 2^100
	for _, xi := range x {
		f := new(big.Float).SetPrec(200).SetFloat64(xi)
		sum.Add(sum, f.Mul(f, f))
	}
	want, _ := sum.Float64()
	return call{
		fmt.Sprintf("SumSquares/n=%d", n),
		[]operand{{data: doubles{math.NaN()}, want: []float64{want}, slack: 1e-12 * want}, inWide(x)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) { k.SumSquares(s, m[0], m[1], n) },
	}
}

// adamW is several updates from new gradients, with the settings of GPT-2 and a
// gradient scale as clipping gives one. What they should give is the formula of
// kernel.AdamW as it stands there; the bound grows with what each step adds.
// The last third does not decay.
func (of maker) adamW(n, steps int) call {
	a := kernel.AdamW{LR: 6e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Decayed: n - n/3, GradScale: 0.3}
	r := of.draw()
	start := r.normal(n)
	w, m, v := clone(start), make([]float64, n), make([]float64, n)
	wBound, mBound := abs(start), make([]float64, n)
	var gradients []operand
	for step := 1; step <= steps; step++ {
		g := r.normal(n)
		gradients = append(gradients, inWide(g))
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
	zero, master := make(floats, n), in(floats(nil))
	if of.dtype.Wide() != of.dtype {
		master = addWide(start, w, wBound)
	}
	return call{
		fmt.Sprintf("AdamW/n=%d,steps=%d", n, steps),
		append([]operand{add(start, w, wBound), master, addWide(zero, m, mBound), addWide(zero, v, v)}, gradients...),
		func(k kernel.Backend, s device.Stream, mem []tensor.Mem) {
			for step := 1; step <= steps; step++ {
				a.Step = step
				k.AdamW(s, mem[0], mem[1], mem[2], mem[3], mem[3+step], n, a)
			}
		},
	}
}
