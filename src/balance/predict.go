package balance

import "slices"

// stepSeconds predicts the time of a step of microbatches over stages with
// these loads (seconds per microbatch, forward and backward):
//
//	fill + M · bottleneck,  fill = Σ_s load_s - bottleneck
//
// One microbatch passes all stages forward and back, Σ load; behind it the
// slowest stage delivers one every bottleneck. For equal stages it is
// (P-1+M)·load, what GPipe and 1F1B take; for others it is an estimate: a slow
// first stage can hide the stages behind it, an uneven fill can cost more.
// Messages are not counted.
func stepSeconds(loads []float64, microbatches int) float64 {
	sum := 0.0
	for _, x := range loads {
		sum += x
	}
	return sum + float64(microbatches-1)*slices.Max(loads)
}

// Headroom returns the largest speedup that any balancer, contiguous or not,
// can have over the static partition on the same work, as stepSeconds sees it:
//
//	(fill + M · static bottleneck) / (fill + M · max(t_max, T/P))
//
// The least possible Σ load and the lower bound of p stand for a perfect balancer.
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
