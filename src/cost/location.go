package cost

import "slices"

// Location returns what seconds that were measured several times are taken to be:
// the lower quartile of each, 0 if there are none. Noise on shared machines is
// one-sided, since a kernel may be interrupted and is never hurried. Of equal blocks on
// four stages that shared two busy cores, the one that was furthest off was so by 12 %
// in the median, by 6 % in the lower quartile and by 7 % in the minimum, which besides
// fails where noise is symmetric.
func Location(list []Stage) Stage {
	v := make([]float64, len(list))
	of := func(seconds func(Stage) float64) float64 {
		for i, s := range list {
			v[i] = seconds(s)
		}
		return LowerQuartile(v)
	}
	return Stage{
		Forward: of(func(s Stage) float64 { return s.Forward }),
		Input:   of(func(s Stage) float64 { return s.Input }),
		Weight:  of(func(s Stage) float64 { return s.Weight }),
	}
}

// LowerQuartile sorts v and returns its lower quartile, 0 if it is empty.
func LowerQuartile(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return Quantile(v, 0.25)
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
