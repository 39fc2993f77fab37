package kerneltest

import (
	"math"
	"math/rand/v2"

	"dynmo/src/tensor"
)

// Seeds are fixed, so that a failure repeats. Operands that an example is given
// and those that it draws have different numbers.
const givenSeed, drawnSeed = 1, 2

// maker makes calls for backends of an element type, which round operands of dense products to another.
type maker struct{ dtype, products tensor.DType }

// draw makes the data of one call. Its numbers are values of the element type,
// of float32 at most, so that a backend and the float64 reference start from the
// same ones.
type draw struct {
	*rand.Rand
	dtype tensor.DType
}

// draw begins a sequence of random numbers; equal seeds give equal ones.
func (of maker) draw(seed uint64) draw { return draw{rand.New(rand.NewPCG(seed, 2)), of.dtype} }

// round returns the nearest value of the element type, of float32 at most.
func (r draw) round(x float64) float64 {
	if r.dtype == tensor.BF16 {
		return float64(tensor.FromBF16(tensor.ToBF16(float32(x))))
	}
	return float64(float32(x))
}

// normal returns n standard normal numbers.
func (r draw) normal(n int) []float64 {
	x := make([]float64, n)
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

// abs returns |x|, nil if x is nil.
func abs(x []float64) []float64 { return converted(x, math.Abs) }

// single rounds x to float32 values: wide operands that an earlier call made.
func single(x []float64) []float64 {
	return converted(x, func(x float64) float64 { return float64(float32(x)) })
}

// rounded rounds x to values of the element type: operands that an earlier call made.
func (r draw) rounded(x []float64) []float64 { return converted(x, r.round) }

// converted returns f of each element, nil if x is nil.
func converted[F, T any](x []F, f func(F) T) []T {
	if x == nil {
		return nil
	}
	y := make([]T, len(x))
	for i := range x {
		y[i] = f(x[i])
	}
	return y
}
