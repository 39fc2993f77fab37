package random

import (
	"math"
	"math/rand/v2"
)

// Delay returns how many times longer than usual something takes, in
// [1, most], by its key: 1 + min(|x|/3, 1)·(most-1) with x ~ N(0, 1). So one in
// 370 takes most times as long (three standard deviations), and the mean is
// 1 + 0.266·(most-1). It returns 1 if most is at most 1. (Paper, figure 7: a
// network with delays of up to 4 times, normally distributed, after Sukhov &
// Kuznetsova 2009.) It does not allocate.
func Delay(most float64, key ...uint64) float64 {
	if !(most > 1) {
		return 1
	}
	var p rand.PCG
	Seed(&p, key...)
	uniform := float64(p.Uint64()>>11) / (1 << 53) // below 1: the inverse is finite
	return 1 + min(math.Sqrt2*math.Erfinv(uniform)/3, 1)*(most-1)
}
