package balance

import "slices"

// stepSeconds predicts the seconds of a step. loads are by stage, in seconds per microbatch for
// forward and backward:
//
//	fill + M · bottleneck,  fill = Σ_s load_s - bottleneck
//
// One microbatch passes all stages forward and back, Σ load. After it the slowest stage delivers
// one microbatch every bottleneck seconds. For equal stages the result is (P-1+M)·load, the time of
// GPipe and 1F1B. For other stages it is an estimate: a slow first stage can hide later stages, and
// an uneven fill can cost more. Messages are not counted.
func stepSeconds(loads []float64, microbatches int) float64 {
	sum := 0.0
	for _, x := range loads {
		sum += x
	}
	return sum + float64(microbatches-1)*slices.Max(loads)
}

// Headroom returns the largest speedup over the static partition that any balancer can reach on the
// same work, contiguous or not. Times are those of stepSeconds:
//
//	(fill + M · static bottleneck) / (fill + M · max(t_max, T/P))
//
// A perfect balancer is represented by the least possible Σ load and the lower bound of p.
func Headroom(p Problem, static Result, microbatches int) (float64, error) {
	c, err := newChain(p)
	if err != nil {
		return 0, err
	}
	fastest := 1.0
	if p.Slow != nil {
		fastest = slices.Min(p.Slow)
	}
	least := fastest * c.work[c.layers]
	for _, x := range p.Fixed {
		least += x
	}
	best := least + float64(microbatches-1)*min(c.lowerBound(), static.Bottleneck)
	if best == 0 {
		return 1, nil
	}
	return stepSeconds(static.StageSeconds, microbatches) / best, nil
}
