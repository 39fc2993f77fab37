package cost

// OfFull returns the time of a pass divided by that of a pass on all tokens.
func OfFull(fixed, work float64) float64 {
	if work == 0 {
		return 0
	}
	return fixed + (1-fixed)*work
}

// MeanOfFull returns the mean of OfFull over the microbatches.
func MeanOfFull(fixed float64, work []float64) float64 {
	if work == nil {
		return 1
	}
	sum := 0.0
	for _, w := range work {
		sum += OfFull(fixed, w)
	}
	return sum / float64(len(work))
}

// Divided returns the samples, each divided by the factor of its microbatch. Samples with factor 0
// are left out.
func Divided(samples []Stage, factor func(microbatch int) float64) (list []Stage) {
	for m, s := range samples {
		if x := factor(m); x > 0 {
			list = append(list, s.Scale(1/x))
		}
	}
	return list
}

// Even returns samples of a layer as if every microbatch had the mean work. Samples of microbatches
// without work are left out.
func (t Table) Even(samples []Stage, layer int) []Stage {
	if t.Scale == nil || t.Scale[layer] == nil {
		return samples
	}
	return Divided(samples, func(m int) float64 { return t.Scale[layer][m] })
}
