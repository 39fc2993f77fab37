package kerneltest

import (
	"math"
	"slices"
	"testing"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// fixedPoint returns the calls of fixed-point sums, on numbers that lie between two multiples of
// 2^-50 too, on both zeros and on a large one. All are exact.
func (of maker) fixedPoint(n int) []example {
	special := []float64{0x1p-51, 0x3p-51, -0x5p-51, math.Copysign(0, -1), 0, 0x1.fffffep11, -0x1p-149}
	x, r := single(of.draw(givenSeed).normal(n)), of.draw(drawnSeed)
	sum, other := make([]int64, kernel.FixedWords(n)), make([]int64, kernel.FixedWords(n))
	for i := range x {
		if i%5 == 2 {
			x[i] = special[i/5%len(special)]
		}
		sum[i], other[i] = r.Int64N(1<<58)-1<<57, r.Int64N(1<<58)-1<<57
	}
	sum[n], other[n] = 1<<57, 1<<57
	added, both, rounded, most := slices.Clone(sum), slices.Clone(sum), make([]float64, n), 0.0
	for i, value := range x {
		added[i] += int64(math.RoundToEven(math.Ldexp(value, 50)))
		both[i] += other[i]
		most = max(most, math.Abs(value))
		if rounded[i] = math.Ldexp(float64(sum[i]), -50); of.dtype != tensor.F64 {
			rounded[i] = math.Ldexp(float64(float32(sum[i])), -50)
		}
	}
	added[n] += int64(math.Ceil(math.Ldexp(most, 50)))
	both[n] += other[n]
	exactly := func(name string, want []float64) judge {
		return func(kernel.Call, values) (values, values) { return values{name: want}, nil }
	}
	call := func(op kernel.Op) kernel.Call { return kernel.Call{Op: op, Dims: kernel.Dims{N: n}} }
	return []example{
		of.example(call(kernel.AccumulateFixed), "", map[string]any{"sum": sum, "x": x}, exactly("sum", widened(added))),
		of.example(call(kernel.AddFixed), "", map[string]any{"sum": sum, "other": other}, exactly("sum", widened(both))),
		of.example(call(kernel.RoundFixed), "", map[string]any{"sum": sum}, exactly("out", rounded)),
	}
}

// fixedOverflow asserts that a sum that may have overflowed is NaN, in whatever order it was
// added up, and another one is not.
func fixedOverflow(t *testing.T, k kernel.Backend, dev device.Device) {
	for _, c := range []struct {
		first, second float64
		is            bool
	}{
		{4096, -4095.9, false}, {4096, -4096, true}, {5000, 5000, true}, {0, 8192, true}, {0, -8191, false},
		{1, math.Inf(-1), true}, {math.NaN(), 0, true}, {math.MaxFloat32, 0, true},
	} {
		for _, swapped := range []bool{false, true} {
			const n = 5
			numbers := [2][]float64{{0, 0, 0, c.first, 0}, {0, 0, 0, c.second, 0}}
			if swapped {
				slices.Reverse(numbers[:])
			}
			x := example{operands: []operand{
				{kind: kernel.Wide, data: make([]float64, n)}, {kind: kernel.Wide, data: numbers[0]}, {kind: kernel.Wide, data: numbers[1]},
				{kind: kernel.AccumulateFixed.Of().Operands[0].Kind, data: make([]int64, kernel.FixedWords(n))},
				{kind: kernel.AccumulateFixed.Of().Operands[0].Kind, data: make([]int64, kernel.FixedWords(n))},
			}}
			a := newArena(t, dev, x, k.DType(), 0)
			k.AccumulateFixed(a.stream, a.mem[3], a.mem[1], n)
			k.AccumulateFixed(a.stream, a.mem[4], a.mem[2], n)
			k.AddFixed(a.stream, a.mem[3], a.mem[4], n)
			k.RoundFixed(a.stream, a.mem[0], a.mem[3], n)
			out := x.operands[0].decode(a.read(t)[0], k.DType())
			a.free()
			for i, got := range out {
				if math.IsNaN(got) != c.is {
					t.Errorf("%v and %v: element %d is %v, want NaN: %v", c.first, c.second, i, got, c.is)
				}
			}
		}
	}
}
