package model

import (
	"cmp"
	"math"
)

// route decides which experts the tokens of a microbatch go to, from the router's logits
// of them, in float64, and fills in the dispatch. What it decides follows from the logits
// alone: of equal scores the first experts are chosen. All weights are times Scale.
//
// With p the softmax of a token's logits over all experts, the token goes to the Top
// experts of the largest p, by the weights g = p / Σ p over these (Jiang et al. 2024); or,
// if assignments are balanced, to those of the largest exp(s·logit)·b, by the weights p,
// where b balances the experts (Clark et al. 2022, S-BASE; see sharpen for s).
func (e Experts) route(d *Dispatch, n int, logit func(i int) float64) {
	d.tokens = n
	z := d.probabilities(e, logit)
	d.choose(e, logit)
	balance := d.ownGradients(e)
	d.weigh(e)
	d.drop(e)
	d.losses = [2]float64{float64(n) * balance, z}
}

// probabilities sets p to the softmax of the logits and lse to the logarithm of its
// denominator, and returns Σ lse² over the tokens.
func (d *Dispatch) probabilities(e Experts, logit func(i int) float64) (z float64) {
	for t := range d.tokens {
		p, largest, sum := d.p[t*e.Count:][:e.Count], math.Inf(-1), 0.0
		for k := range p {
			p[k] = logit(t*e.Count + k)
			largest = max(largest, p[k])
		}
		for k := range p {
			p[k] = math.Exp(p[k] - largest)
			sum += p[k]
		}
		for k := range p {
			p[k] /= sum
		}
		d.lse[t] = largest + math.Log(sum)
		z += d.lse[t] * d.lse[t]
	}
	return z
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
func (d *Dispatch) sharpen(experts int, logit func(i int) float64) {
	variance := 0.0
	for t := range d.tokens {
		mean, square := 0.0, 0.0
		for k := range experts {
			z := logit(t*experts+k) - d.lse[t]
			mean, square = mean+z/float64(experts), square+z*z/float64(experts)
		}
		variance += (square - mean*mean) / float64(d.tokens)
	}
	stretch := 1.0
	if variance > 0 {
		stretch = sharpness / math.Sqrt(variance)
	}
	for t := range d.tokens {
		row, largest := d.scores[t*experts:][:experts], math.Inf(-1)
		for k := range row {
			row[k] = logit(t*experts + k)
			largest = max(largest, row[k])
		}
		for k := range row {
			row[k] = math.Exp(stretch * (row[k] - largest))
		}
	}
}

// balance sets scales so that scores·scales, each row scaled to the sum 1, has columns of
// nearly equal sums (Sinkhorn & Knopp 1967).
func (d *Dispatch) balance(experts int) {
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

// choose lists every token's experts, the largest score first.
func (d *Dispatch) choose(e Experts, logit func(i int) float64) {
	for k := range d.scales {
		d.scales[k] = 1
	}
	scores := d.p
	if e.Balanced {
		d.sharpen(e.Count, logit)
		d.balance(e.Count)
		scores = d.scores
	}
	for t := range d.tokens {
		d.largest(d.chosen[t*e.Top:][:e.Top], scores[t*e.Count:][:e.Count])
	}
}

// largest lists the experts of the largest scores·scales, the largest first; of equal ones,
// and of those that are no numbers, the first.
func (d *Dispatch) largest(chosen []int32, scores []float64) {
	n, most := 0, d.most
	for k, x := range scores {
		score, at := x*d.scales[k], n
		if n < len(chosen) {
			n++
		} else if at--; !(score > most[at]) {
			continue
		}
		for ; at > 0 && score > most[at-1]; at-- {
			chosen[at], most[at] = chosen[at-1], most[at-1]
		}
		chosen[at], most[at] = int32(k), score
	}
}

// ownGradients sets own to the gradient, by the logits, of the router's own losses summed
// over the tokens, Auxiliary·E·Σ_e f_e·P_e of each and Z·lse², with f_e the share of the
// choices that are expert e and P_e its mean probability (Fedus et al. 2022; Zoph et al.
// 2022). f is no function of the logits. It returns E·Σ_e f_e·P_e, which is 1 where loads
// are equal. If assignments are balanced the first loss has no gradient.
func (d *Dispatch) ownGradients(e Experts) (balance float64) {
	clear(d.sums)
	for _, k := range d.chosen[:d.tokens*e.Top] {
		d.sums[k] += 1 / float64(d.tokens*e.Top)
	}
	weight := e.Auxiliary * float64(e.Count)
	if e.Balanced {
		weight = 0
	}
	for t := range d.tokens {
		p, mean := d.p[t*e.Count:][:e.Count], 0.0
		for k, x := range p {
			mean += d.sums[k] * x
		}
		balance += mean * float64(e.Count) / float64(d.tokens)
		for k, x := range p {
			d.own[t*e.Count+k] = x * (weight*(d.sums[k]-mean) + 2*e.Z*d.lse[t])
		}
	}
	return balance
}

// weigh sets weights to those of the chosen experts, Scale times p, and makes p the softmax
// that they are of: over the chosen experts, or over all if assignments are balanced.
func (d *Dispatch) weigh(e Experts) {
	scale := cmp.Or(e.Scale, 1)
	for t := range d.tokens {
		p, chosen, sum := d.p[t*e.Count:][:e.Count], d.chosen[t*e.Top:][:e.Top], 0.0
		for _, k := range chosen {
			sum += p[k]
		}
		if e.Balanced {
			sum = 1
		}
		weights := d.weights[t*e.Top:][:e.Top]
		for slot, k := range chosen {
			weights[slot] = p[k] / sum
		}
		if !e.Balanced {
			clear(p)
			for slot, k := range chosen {
				p[k] = weights[slot]
			}
		}
		for slot := range weights {
			weights[slot] *= scale
		}
	}
}

// drop counts the assignments of each expert. Where there is a capacity an expert takes
// first choices before second ones, and earlier tokens first; the others are dropped.
func (d *Dispatch) drop(e Experts) {
	clear(d.counts)
	room := e.room(d.tokens)
	for slot := range e.Top {
		for t := range d.tokens {
			k := d.chosen[t*e.Top+slot]
			if int(d.counts[k]) < room {
				d.counts[k]++
				continue
			}
			d.chosen[t*e.Top+slot] = dropped
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

// gradients sets dlogit, by its place, to the gradient of the logits: that of the router's
// own losses, and with h = g·dg of each chosen expert, dg the gradient of its weight,
//
//	h·[chosen] - p·Σ h
//
// where p is the softmax that the weights are of.
func (d *Dispatch) gradients(e Experts, scale float64, dweight func(i int) float64, dlogit func(i int, z float64)) {
	for t := range d.tokens {
		h, sum := d.sums, 0.0
		clear(h)
		for slot := range e.Top {
			i := t*e.Top + slot
			if k := d.chosen[i]; k != dropped {
				h[k] = d.weights[i] * dweight(i)
				sum += h[k]
			}
		}
		for k, p := range d.p[t*e.Count:][:e.Count] {
			i := t*e.Count + k
			dlogit(i, scale*d.own[i]+h[k]-p*sum)
		}
	}
}
