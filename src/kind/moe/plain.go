package moe

import "dynmo/src/kernel/ref"

// Plain returns which experts each of n tokens goes to, and by which weights, (n, Top), the
// most probable first. Every token is decided on by itself: as in training without a capacity
// and with assignments that are not balanced, which both depend on the other tokens of a
// microbatch. What an expert's choice weighs is as it was trained.
func (e Experts) Plain(n int, logit func(i int) float64) (chosen []int32, weights []float64) {
	logits, router := make([]float64, n*e.Count), make([]float64, 2*n*e.Count)
	for i := range logits {
		logits[i] = logit(i)
	}
	chosen, weights = make([]int32, n*e.Top), make([]float64, n*e.Top)
	r := e.routing(n)
	r.Room = n
	ref.RouteTokens(chosen, weights, router, make([]float64, CountsFrom+e.Count), logits, nil, r, n, e.Count, e.Top)
	return chosen, weights
}
