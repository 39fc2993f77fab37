package kerneltest

import (
	"math"
	"math/rand/v2"
	"slices"

	"dynmo/src/tensor"
)

// maker makes calls for backends of an element type.
type maker struct{ dtype tensor.DType }

// draw makes the data of one call. Its numbers are values of the element type,
// of float32 at most, so that a backend and the float64 reference start from the
// same ones.
type draw struct {
	*rand.Rand
	dtype tensor.DType
}

func (of maker) draw() draw { return draw{rand.New(rand.NewPCG(1, 2)), of.dtype} } // fixed seed: a failure must repeat

// round returns the nearest value of the element type, of float32 at most.
func (r draw) round(x float64) float64 {
	if r.dtype == tensor.BF16 {
		return float64(tensor.FromBF16(tensor.ToBF16(float32(x))))
	}
	return float64(float32(x))
}

// normal returns n standard normal numbers.
func (r draw) normal(n int) floats {
	x := make(floats, n)
	for i := range x {
		x[i] = r.round(r.NormFloat64())
	}
	return x
}

// indices returns n numbers in [0, limit).
func (r draw) indices(n, limit int) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = int32(r.IntN(limit))
	}
	return x
}

// bits returns a mask of n bits, each 1 with probability keep. The bits of the
// last word that no element has are 1.
func (r draw) bits(n int, keep float64) []uint64 {
	words := make([]uint64, (n+63)/64)
	for i := range 64 * len(words) {
		if i >= n || r.Float64() < keep {
			words[i/64] |= 1 << (i % 64)
		}
	}
	return words
}

// in is an operand that the call reads.
func in(data any) operand { return operand{data: data} }

// set is an operand that the call overwrites: nothing of its NaNs may stay.
func set(want, bound []float64) operand {
	start := make(floats, len(want))
	for i := range start {
		start[i] = math.NaN()
	}
	return operand{data: start, want: want, bound: bound}
}

// setWide is an operand of wide elements that the call overwrites, addWide one
// that it starts from, inWide one that it reads.
func setWide(want, bound []float64) operand {
	o := set(want, bound)
	o.data = wides(o.data.(floats))
	return o
}

func addWide(start floats, want, bound []float64) operand {
	return operand{data: wides(start), want: want, bound: bound}
}

func inWide(data []float64) operand { return operand{data: wides(data)} }

// setDoubles is an operand of F64 that the call overwrites.
func setDoubles(want, bound []float64) operand {
	o := set(want, bound)
	o.data = doubles(o.data.(floats))
	return o
}

// add is an operand that the call starts from: adds to, or updates in place.
func add(start floats, want, bound []float64) operand {
	return operand{data: start, want: want, bound: bound}
}

// clone returns a copy of x, nil if x is nil.
func clone(x floats) []float64 { return slices.Clone([]float64(x)) }

// abs returns |x|, nil if x is nil. A sum of products of absolute values bounds the rounding
// errors of the sum of the products (Higham 2002, section 3.1).
func abs(x []float64) []float64 {
	if x == nil {
		return nil
	}
	y := make([]float64, len(x))
	for i := range x {
		y[i] = math.Abs(x[i])
	}
	return y
}

// single rounds x to float32 values: wide operands that an earlier call made.
func single(x []float64) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		y[i] = float64(float32(x[i]))
	}
	return y
}

// rounded rounds x to values of the element type: operands that an earlier call made.
func (r draw) rounded(x []float64) floats {
	y := make(floats, len(x))
	for i := range x {
		y[i] = r.round(x[i])
	}
	return y
}

// narrow returns x as float32.
func narrow(x []float64) []float32 {
	y := make([]float32, len(x))
	for i := range x {
		y[i] = float32(x[i])
	}
	return y
}

// halves returns x as bfloat16.
func halves(x []float64) []uint16 {
	y := make([]uint16, len(x))
	for i := range x {
		y[i] = tensor.ToBF16(float32(x[i]))
	}
	return y
}
