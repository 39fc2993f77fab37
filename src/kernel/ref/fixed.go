package ref

import (
	"math"

	"dynmo/src/kernel"
)

// accumulateFixed adds x (n), in units of 1/kernel.FixedUnit, to the first n of sum, and the
// largest |x| to the bound sum[n].
func accumulateFixed[F Float](sum []int64, x []F) {
	most, exact := 0.0, true
	for i, value := range x {
		scaled := float64(value) * kernel.FixedUnit
		if !(math.Abs(scaled) < math.MaxInt64) {
			exact = false
			continue
		}
		most = max(most, math.Abs(scaled))
		sum[i] += int64(math.RoundToEven(scaled))
	}
	by := int64(math.MaxInt64)
	if exact {
		by = int64(math.Ceil(most))
	}
	raiseBound(&sum[len(x)], by)
}

// raiseBound adds to a bound, which stays at the largest number once it is there.
func raiseBound(bound *int64, by int64) {
	if by > math.MaxInt64-*bound {
		by = math.MaxInt64 - *bound
	}
	*bound += by
}

// addFixed adds other to sum. Numbers may wrap around: the bound says if the last sum has.
func addFixed(sum, other []int64) {
	n := len(sum) - kernel.FixedWords(0)
	for i := range n {
		sum[i] += other[i]
	}
	raiseBound(&sum[n], other[n])
}

// roundFixed sets out to the nearest numbers to those of sum, or to NaN where its bound is the
// largest.
func roundFixed[F Float](out []F, sum []int64) {
	for i := range out {
		out[i] = F(sum[i]) / kernel.FixedUnit
		if sum[len(out)] == math.MaxInt64 {
			out[i] = F(math.NaN())
		}
	}
}
