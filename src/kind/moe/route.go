package moe

import (
	"cmp"
	"dynmo/src/kernel"
	"dynmo/src/model"
	"dynmo/src/tensor"
	"math"
)

// The device decides where tokens go (see kernel.RouteTokens). With p the softmax of a
// token's logits over all experts, the token goes to the Top experts of the largest p, by the
// weights g = p / Σ p over these (Jiang et al. 2024); or, if assignments are balanced, to
// those of the largest scores of kernel.BalanceScores, by the weights p. All weights are
// times Scale. The logits are those of the router, or of a squashed router
// outer·tanh(a), with a what its first matrix makes of a token.

// routeTokens decides where n tokens go, from what the router's first matrix makes of them.
func (e *experts) routeTokens(x *model.Exec, n int, s expertsSaved) {
	logits, scores := s.logits, tensor.Mem{}
	if e.Squashed {
		x.Backend.SquashLogits(x.Stream, s.router, s.squashed, s.logits, e.outer.W.W, n, e.Count)
		logits = tensor.Mem{} // in router
	}
	if e.Balanced {
		x.Backend.BalanceScores(x.Stream, s.router, logits, n, e.Count)
		scores = s.router.Span(s.router.Bytes/2, s.router.Bytes/2)
	}
	x.Backend.RouteTokens(x.Stream, e.routing(n), s.chosen, s.decided.weights, s.router, s.decided.readings, logits, scores, n, e.Count, e.Top)
}

// placeTokens sorts the assignments to the experts from lo on that have a place here.
func (e *experts) placeTokens(x *model.Exec, n int, s expertsSaved) {
	at := s.decided
	x.Backend.PlaceTokens(x.Stream, at.places, at.tokens, at.factors, at.ends, s.chosen, at.weights, n, e.placed(), e.Top, e.lo)
}

// routeGradient sets dlogits from dweights, and dnormed to what comes by the router.
func (e *experts) routeGradient(x *model.Exec, n int, s expertsSaved, h expertsHeld) {
	r, dlogits := e.routing(n), h.dlogits
	r.Loss = x.Scale
	if e.Squashed {
		dlogits = h.dscores
	}
	x.Backend.RouteGradient(x.Stream, r, dlogits, h.dweights, s.chosen, s.router, n, e.Count, e.Top)
	if e.Squashed {
		x.Backend.SquashGradient(x.Stream, h.dlogits, h.dscores, s.logits, e.outer.W.W, n, e.Count)
	}
	e.router.BackwardInput(x, n, h.dnormed, h.dlogits)
}

// routing returns the settings of the router in a microbatch of so many tokens.
func (e Experts) routing(tokens int) kernel.Routing {
	r := kernel.Routing{Room: e.room(tokens), Shares: !e.Balanced, Scale: cmp.Or(e.Scale, 1), Auxiliary: e.Auxiliary, Z: e.Z}
	if e.Balanced {
		r.Auxiliary = 0
	}
	return r
}

// room returns how many tokens an expert takes of a microbatch: one at least.
func (e Experts) room(tokens int) int {
	if e.Capacity == 0 {
		return tokens
	}
	return max(1, int(math.Ceil(e.Capacity*float64(tokens*e.Top)/float64(e.Count)-1e-9)))
}
