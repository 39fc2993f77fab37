package cost

import (
	"math"
	"slices"
)

// Location returns the location of repeated measurements of seconds: for each pass the mean of the
// lower half, 0 if there are none. Noise on shared machines is one-sided: a kernel may be
// interrupted but is never hurried. Equal blocks were measured on four stages that shared two busy
// cores. The furthest block was off by 12 % in the median, 6 % in the lower quartile and 7 % in the
// minimum. The minimum also fails if noise is symmetric. The mean of the lower half lies near the
// lower quartile, and varies by a seventh less.
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

// Lower returns the mean of the lower half of v, 0 if it is empty. It reorders v.
func Lower(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	Halve(v)
	return LowerHalf(v)
}

// Quantile returns the quantile p of an ascending list that is not empty, by linear interpolation.
func Quantile(ascending []float64, p float64) float64 {
	at := p * float64(len(ascending)-1)
	i := int(at)
	if i+1 >= len(ascending) {
		return ascending[i]
	}
	return ascending[i] + (at-float64(i))*(ascending[i+1]-ascending[i])
}

// Halve reorders v so that the lower half comes first, including the middle element of an odd
// number. The largest element of the lower half is its last. LowerHalf, LowerHalfError and Median
// need this order; an ascending list also has it. (Hoare 1961, "Find".)
func Halve(v []float64) {
	middle, low, high := half(v), 0, len(v)-1
	for low < high {
		pivot := v[low+(high-low)/2]
		i, j := low, high
		for i <= j {
			for v[i] < pivot {
				i++
			}
			for v[j] > pivot {
				j--
			}
			if i <= j {
				v[i], v[j] = v[j], v[i]
				i++
				j--
			}
		}
		if middle <= j {
			high = j
		} else if middle >= i {
			low = i
		} else {
			return
		}
	}
}

// half returns the index of the largest element of a halved list's lower half.
func half(v []float64) int { return (len(v) - 1) / 2 }

// LowerHalf returns the mean of the lower half of a halved list that is not empty. The middle
// element of an odd number counts by half.
func LowerHalf(halved []float64) float64 {
	k := half(halved)
	sum := 0.0 // sum of differences from the largest: the mean of equal values is exact
	for _, x := range halved[:k] {
		sum += x - halved[k]
	}
	return halved[k] + sum/(float64(len(halved))/2)
}

// LowerHalfError returns the estimated standard error of LowerHalf (Winsor's variance). Values
// above the median influence it only by their number.
func LowerHalfError(halved []float64) float64 {
	n, median := float64(len(halved)), Median(halved)
	first, second := 0.0, 0.0
	for _, x := range halved[:half(halved)+1] {
		x -= median
		first, second = first+x, second+x*x
	}
	first, second = first/n, second/n
	return 2 * math.Sqrt(max(0, second-first*first)/n)
}

// Median returns the median of a halved list that is not empty.
func Median(halved []float64) float64 {
	k := half(halved)
	if len(halved)%2 == 1 {
		return halved[k]
	}
	return halved[k] + (slices.Min(halved[k+1:])-halved[k])/2
}
