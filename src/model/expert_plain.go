package model

// Plain returns which experts each of n tokens goes to, and by which weights, (n, Top), the
// most probable first. Every token is decided on by itself: as in training without a capacity
// and with assignments that are not balanced, which both depend on the other tokens of a
// microbatch. What an expert's choice weighs is as it was trained.
func (e Experts) Plain(n int, logit func(i int) float64) (chosen []int32, weights []float64) {
	d := &Dispatch{
		tokens: n, p: make([]float64, n*e.Count), lse: make([]float64, n), most: make([]float64, e.Top),
		chosen: make([]int32, n*e.Top), weights: make([]float64, n*e.Top), scales: make([]float64, e.Count),
	}
	d.probabilities(e, logit)
	apart := e
	apart.Balanced = false
	d.choose(apart, logit)
	d.weigh(e)
	return d.chosen, d.weights
}
