package ref

import (
	"math"

	"dynmo/src/kernel"
)

// readingsFrom is where in RouteTokens' readings the tokens of the first expert are.
const readingsFrom = 4

// RouteTokens chooses k of the experts for each of n tokens, as kernel.Backend says. A nil
// scores is the softmax of the logits, nil logits are the first half of router.
func RouteTokens[F, W Float](chosen []int32, weights []W, router, readings []float64, logits []F, scores []float64, r kernel.Routing, n, experts, k int) {
	p, own, counts := router[:n*experts], router[n*experts:], readings[readingsFrom:]
	clear(readings)
	for i, z := range logits {
		p[i] = float64(z)
	}
	z := 0.0
	for t := range n {
		row := t * experts
		lse := softmaxRow(p[row:][:experts])
		z += lse * lse
		by := p
		if scores != nil {
			by = scores
		}
		mostProbable(chosen[t*k:][:k], by[row:][:experts])
		for _, e := range chosen[t*k:][:k] {
			counts[e]++
		}
		own[row] = lse // until the shares of all choices are known
	}
	balance := 0.0
	for t := range n {
		row := t * experts
		balance += ownGradient(own[row:][:experts], p[row:][:experts], counts, r, float64(n*k))
		weigh(weights[t*k:][:k], p[row:][:experts], chosen[t*k:][:k], r)
	}
	clear(counts)
	left := 0
	for slot := range k {
		for i := slot; i < n*k; i += k {
			if e := chosen[i]; counts[e] < float64(r.Room) {
				counts[e]++
				continue
			}
			chosen[i], weights[i] = -1, 0
			left++
		}
	}
	copy(readings, []float64{float64(n), float64(left), 1000 * balance, 1000 * z})
}

// softmaxRow makes logits their softmax, and returns the logarithm of its denominator.
func softmaxRow(p []float64) (lse float64) {
	largest, sum := math.Inf(-1), 0.0
	for _, z := range p {
		largest = max(largest, z)
	}
	for e := range p {
		p[e] = math.Exp(p[e] - largest)
		sum += p[e]
	}
	for e := range p {
		p[e] /= sum
	}
	return largest + math.Log(sum)
}

// mostProbable lists the experts of the largest scores, the largest first; of equal ones,
// and of those that are no numbers, the first.
func mostProbable(chosen []int32, scores []float64) {
	n := 0
	for e, score := range scores {
		at := n
		if n < len(chosen) {
			n++
		} else if at--; !(score > scores[chosen[at]]) {
			continue
		}
		for ; at > 0 && score > scores[chosen[at-1]]; at-- {
			chosen[at] = chosen[at-1]
		}
		chosen[at] = int32(e)
	}
}

// ownGradient sets own to the gradient, by the logits, of the router's own losses. On entry own[0]
// is the token's lse. counts has the choices of each expert, choices their total. It returns the
// first of these losses, without its weight.
func ownGradient(own, p, counts []float64, r kernel.Routing, choices float64) (balance float64) {
	lse, mean, experts := own[0], 0.0, float64(len(p))
	for e, x := range p {
		mean += counts[e] / choices * x
	}
	for e, x := range p {
		own[e] = x * (r.Auxiliary*experts*(counts[e]/choices-mean) + 2*r.Z*lse)
	}
	return experts * mean
}

// weigh sets weights to those of a token's chosen experts. Where they are shares p becomes
// these.
func weigh[W Float](weights []W, p []float64, chosen []int32, r kernel.Routing) {
	if r.Shares {
		sum := 0.0
		for _, e := range chosen {
			sum += p[e]
		}
		for e, x := range p {
			p[e] = 0
			for _, one := range chosen {
				if int(one) == e {
					p[e] = x / sum
				}
			}
		}
	}
	for slot, e := range chosen {
		weights[slot] = W(r.Scale * p[e])
	}
}

// RouteGradient sets dlogits from the gradients of RouteTokens' weights:
//
//	dlogit_e = Loss·own_e + h_e - p_e·Σ h,  h_e = Scale·p_e·dweight of the chosen experts
func RouteGradient[F, W Float](dlogits []F, dweights []W, chosen []int32, router []float64, r kernel.Routing, n, experts, k int) {
	p, own := router[:n*experts], router[n*experts:]
	for t := range n {
		row, sum := t*experts, 0.0
		for i := t * k; i < (t+1)*k; i++ {
			if chosen[i] >= 0 {
				sum += r.Scale * p[row+int(chosen[i])] * float64(dweights[i])
			}
		}
		for e := row; e < row+experts; e++ {
			h := 0.0
			for i := t * k; i < (t+1)*k; i++ {
				if int(chosen[i]) == e-row {
					h = r.Scale * p[e] * float64(dweights[i])
				}
			}
			dlogits[e] = F(r.Loss*own[e] + h - p[e]*sum)
		}
	}
}

// PlaceTokens sorts choices of the experts from a first one on by expert, and those of an
// expert by token. Others have no place.
func PlaceTokens[W Float](places, tokens []int32, factors []W, ends, chosen []int32, weights []W, k, first int) {
	clear(ends)
	clear(tokens)
	clear(factors)
	experts := len(ends) - 1
	for _, one := range chosen {
		if e := int(one) - first; e >= 0 && e+1 < experts {
			ends[e+2]++
		}
	}
	for e := 2; e < len(ends); e++ { // ends[e+1] is where the next choice of expert e goes
		ends[e] += ends[e-1]
	}
	for i, one := range chosen {
		e := int(one) - first
		places[i] = -1
		if e < 0 || e >= experts {
			continue
		}
		place := ends[e+1]
		ends[e+1]++
		places[i], tokens[place], factors[place] = place, int32(i/k), weights[i]
	}
}

// experts is the matrices (o, c) of experts, Gap elements between two, and which rows each
// works on: [Ends[e], Ends[e+1]).
type experts[F Float] struct {
	Matrices []F
	Gap      int
	Ends     []int32
}

// each calls f for every expert that has rows, with its matrix and the rows.
func (x experts[F]) each(o, c int, f func(matrix []F, lo, hi int)) {
	for e := range len(x.Ends) - 1 {
		if lo, hi := int(x.Ends[e]), int(x.Ends[e+1]); hi > lo {
			f(x.Matrices[e*(o*c+x.Gap):][:o*c], lo, hi)
		}
	}
}

// groupedForward sets rows of out, of o, to those of inp, of c, times the transposed matrix
// of their expert.
func groupedForward[F Float](out, inp []F, x experts[F], c, o int) {
	x.each(o, c, func(w []F, lo, hi int) { MatmulForward(out[lo*o:hi*o], inp[lo*c:hi*c], w, nil, hi-lo, c, o) })
}

// groupedBackwardInput sets rows of dinp, of c, to those of dout, of o, times the matrix of
// their expert.
func groupedBackwardInput[F Float](dinp, dout []F, x experts[F], c, o int) {
	x.each(o, c, func(w []F, lo, hi int) { matmulBackwardInput(dinp[lo*c:hi*c], dout[lo*o:hi*o], w, hi-lo, c, o) })
}

// groupedBackwardWeight adds to each expert's matrix the product of its rows of dout,
// transposed, and inp.
func groupedBackwardWeight[F Float](x experts[F], dout, inp []F, c, o int) {
	x.each(o, c, func(dw []F, lo, hi int) { matmulBackwardWeight(dw, nil, dout[lo*o:hi*o], inp[lo*c:hi*c], hi-lo, c, o) })
}
