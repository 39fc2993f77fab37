package cost

import (
	"math"
	"slices"
)

// Location returns what seconds that were measured several times are taken to be:
// the mean of the lower half of each, 0 if there are none. Noise on shared machines is
// one-sided, since a kernel may be interrupted and is never hurried. Of equal blocks on
// four stages that shared two busy cores, the one that was furthest off was so by 12 %
// in the median, by 6 % in the lower quartile and by 7 % in the minimum, which besides
// fails where noise is symmetric. The mean of the lower half lies near the lower
// quartile, and varies by a seventh less.
func Location(list []Stage) Stage {
	v := make([]float64, len(list))
	of := func(seconds func(Stage) float64) float64 {
		for i, s := range list {
			v[i] = seconds(s)
		}
		return Lower(v)
	}
	return Stage{
		Forward: of(func(s Stage) float64 { return s.Forward }),
		Input:   of(func(s Stage) float64 { return s.Input }),
		Weight:  of(func(s Stage) float64 { return s.Weight }),
	}
}

// Lower sorts v and returns the mean of its lower half, 0 if it is empty.
func Lower(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return LowerHalf(v)
}

// Quantile returns the quantile p of an ascending list that is not empty, between its
// neighbours in proportion.
func Quantile(ascending []float64, p float64) float64 {
	at := p * float64(len(ascending)-1)
	i := int(at)
	if i+1 >= len(ascending) {
		return ascending[i]
	}
	return ascending[i] + (at-float64(i))*(ascending[i+1]-ascending[i])
}

// LowerHalf returns the mean of the lower half of an ascending list that is not
// empty.
func LowerHalf(ascending []float64) float64 {
	half := float64(len(ascending)) / 2
	least, sum := ascending[0], 0.0 // sum of what is beyond the least: equal values are their mean to the last bit
	for i, x := range ascending[:(len(ascending)+1)/2] {
		sum += (x - least) * min(1, half-float64(i))
	}
	return least + sum/half
}

// LowerHalfError returns the standard error of LowerHalf that the list tells: of what
// lies above the median only that it does (Winsor's variance).
func LowerHalfError(ascending []float64) float64 {
	n, middle := float64(len(ascending)), Quantile(ascending, 0.5)
	first, second := 0.0, 0.0
	for _, x := range ascending {
		x = min(0, x-middle)
		first, second = first+x/n, second+x*x/n
	}
	return 2 * math.Sqrt(max(0, second-first*first)/n)
}
