package model

import (
	"cmp"
	"math"

	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
)

// route decides which experts the tokens of a microbatch go to, from the router's logits
// of them, as kernel.RouteTokens does, and fills in the dispatch. What it decides follows
// from the logits alone.
//
// With p the softmax of a token's logits over all experts, the token goes to the Top
// experts of the largest p, by the weights g = p / Σ p over these (Jiang et al. 2024); or,
// if assignments are balanced, to those of the largest exp(s·logit)·b, by the weights p,
// where b balances the experts (Clark et al. 2022, S-BASE; see sharpen for s). All weights
// are times Scale.
func (e Experts) route(d *Dispatch, n int, logit func(i int) float64) {
	d.tokens = n
	logits, scores := d.logits[:n*e.Count], []float64(nil)
	for i := range logits {
		logits[i] = logit(i)
	}
	if e.Balanced {
		d.sharpen(e.Count)
		d.balance(e.Count)
		scores = d.scores[:n*e.Count]
		for i := range scores {
			scores[i] *= d.scales[i%e.Count]
		}
	}
	ref.RouteTokens(d.chosen[:n*e.Top], d.weights[:n*e.Top], d.router[:2*n*e.Count], d.readings, logits, scores, e.routing(n), n, e.Count, e.Top)
	for k := range d.counts {
		d.counts[k] = int32(d.readings[ExpertsFrom+k])
	}
}

// routing returns the settings of the router in a microbatch of so many tokens.
func (e Experts) routing(tokens int) kernel.Routing {
	r := kernel.Routing{Room: e.room(tokens), Shares: !e.Balanced, Scale: cmp.Or(e.Scale, 1), Auxiliary: e.Auxiliary, Z: e.Z}
	if e.Balanced {
		r.Auxiliary = 0
	}
	return r
}

// sinkhornRounds is how often the probabilities are scaled to equal sums of tokens and of
// experts: 100 rounds lead to the same losses of a small run. What is balanced are shares
// of tokens, which go to experts in whole: where a router prefers some of 16 experts by up
// to e^4 the fullest has 1.05 to 1.15 times the mean (TestBalancedAssignment), and more in
// a microbatch of few different tokens, since those that are alike go together.
const sinkhornRounds = 16

// leastShare is the smallest sum of probabilities of an expert that is scaled up: what is
// smaller no token can reach.
const leastShare = 1e-200

// sharpness is the deviation of a token's logits, on the mean, when assignments are
// balanced. What is balanced are shares of tokens, while tokens go to experts in whole: in
// a small run of 16 experts whose logits were left as they are the fullest had 1.6 to 2.3
// times the mean, with 8 it had 1.4 to 1.7.
const sharpness = 8

// sharpen sets scores to exp(sharpness/σ·(logit - largest)), the logits of a token against
// its largest, σ their mean deviation over all tokens.
func (d *Dispatch) sharpen(experts int) {
	variance := 0.0
	for t := range d.tokens {
		row, logits := d.scores[t*experts:][:experts], d.logits[t*experts:][:experts]
		largest, mean, square := math.Inf(-1), 0.0, 0.0
		for _, z := range logits {
			largest = max(largest, z)
		}
		for k, z := range logits {
			row[k] = z - largest
			mean, square = mean+row[k]/float64(experts), square+row[k]*row[k]/float64(experts)
		}
		variance += (square - mean*mean) / float64(d.tokens)
	}
	stretch := 1.0
	if variance > 0 {
		stretch = sharpness / math.Sqrt(variance)
	}
	for i, z := range d.scores[:d.tokens*experts] {
		d.scores[i] = math.Exp(stretch * z)
	}
}

// balance sets scales so that scores·scales, each row scaled to the sum 1, has columns of
// nearly equal sums (Sinkhorn & Knopp 1967).
func (d *Dispatch) balance(experts int) {
	for k := range d.scales {
		d.scales[k] = 1
	}
	for range sinkhornRounds {
		clear(d.sums)
		for t := range d.tokens {
			scores, row := d.scores[t*experts:][:experts], 0.0
			for k, x := range scores {
				row += x * d.scales[k]
			}
			row = 1 / row // the largest score is 1
			for k, x := range scores {
				d.sums[k] += x * row
			}
		}
		for k, sum := range d.sums {
			if sum > leastShare {
				d.scales[k] = float64(d.tokens) / float64(experts) / sum
			}
		}
	}
}

// place sorts the assignments to experts [lo, hi) by expert, and of one expert by token.
// Those to others have no place, as if they were dropped.
func (d *Dispatch) place(top, lo, hi int) {
	next := int32(0)
	d.ends[0] = 0
	for k, count := range d.counts {
		d.ends[k+1] = next // where its next assignment goes, and at last its end
		if lo <= k && k < hi {
			next += count
		}
	}
	for i, k := range d.chosen[:d.tokens*top] {
		d.places[i] = dropped
		if lo <= int(k) && int(k) < hi {
			d.places[i] = d.ends[k+1]
			d.ends[k+1]++
		}
	}
}

// dropped stands for the expert, and the place, of an assignment beyond the capacity.
const dropped = -1

// room returns how many tokens an expert takes of a microbatch: one at least.
func (e Experts) room(tokens int) int {
	if e.Capacity == 0 {
		return tokens
	}
	return max(1, int(math.Ceil(e.Capacity*float64(tokens*e.Top)/float64(e.Count)-1e-9)))
}

// gradients sets dlogit, by its place, to the gradient of the logits from those of the
// weights, as kernel.RouteGradient does.
func (d *Dispatch) gradients(e Experts, scale float64, dweight func(i int) float64, dlogit func(i int, z float64)) {
	n, r := d.tokens, e.routing(d.tokens)
	r.Loss = scale
	for i := range d.dweights[:n*e.Top] {
		d.dweights[i] = dweight(i)
	}
	dlogits := d.scores[:n*e.Count]
	ref.RouteGradient(dlogits, d.dweights, d.chosen, d.router[:2*n*e.Count], r, n, e.Count, e.Top)
	for i, z := range dlogits {
		dlogit(i, z)
	}
}
