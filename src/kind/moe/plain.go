package moe

import (
	"fmt"

	"dynmo/src/kernel/ref"
)

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
	ref.RouteTokens(chosen, weights, router, make([]float64, countsFrom+e.Count), logits, nil, r, n, e.Count, e.Top)
	return chosen, weights
}

// Taken returns how many experts a token goes to.
func (e Experts) Taken() int { return e.Top }

// Place returns what the names of the weights of an expert begin with, in its block.
func (e Experts) Place(expert int) string { return fmt.Sprintf("expert.%d.", expert) }

// Notes says where Plain decides otherwise than training did.
func (e Experts) Notes() (list []string) {
	if e.Balanced {
		list = append(list, "moe.balance = s-base chose experts by all tokens of a microbatch: here each token goes to those that are most probable for it")
	}
	if e.Capacity > 0 {
		list = append(list, "moe.capacity dropped what experts had no room for: here they have")
	}
	return list
}
