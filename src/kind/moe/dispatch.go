package moe

import (
	"cmp"
	"math"

	"dynmo/src/kernel"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// dispatch is what the host knows of where the tokens of a microbatch go among the experts of
// a layer, from its forward on.
type dispatch struct {
	entered model.Batch
	origin  *model.Batch // that the layer was entered by

	x *model.Exec
	divided

	// Where the host waits for the rows of experts:
	ends   []int32 // by expert where its assignments begin; and where they all end
	blocks []block // of the rows that the experts here work on
	worked int     // these rows
	spreading

	layer  *experts
	forced []int32   // of each token its experts, where these are forced
	given  []float64 // by expert the tokens that it takes then

	inp, outputs tensor.Mem // inp and outputs of expertsSaved, where spread experts recompute: they have rows that other replicas sent
}

func newDispatch(x *model.Exec, e divided) *dispatch {
	d := &dispatch{x: x, divided: e, ends: make([]int32, e.placed()+1)}
	d.sent, d.taken, d.total = make([][]segment, e.Spread), make([][]segment, e.Spread), make([]int, e.Count)
	return d
}

// Enter returns b as it enters a layer that dispatches its tokens by d.
func (d *dispatch) Enter(b *model.Batch) *model.Batch {
	d.spreads(d.x)
	d.origin, d.entered = b, *b
	d.entered.Work = d
	return &d.entered
}

// Skip does nothing: none of no tokens goes anywhere.
func (d *dispatch) Skip() error { return nil }

// Leaves returns the batch that entered.
func (d *dispatch) Leaves() *model.Batch { return d.origin }

// Worked returns the tokens that are computed; where experts are spread over replicas, those
// of all replicas that the experts here compute. Of a group of experts only its reading
// GroupRows tells.
func (d *dispatch) Worked() int {
	if d.Spread > 1 {
		return d.worked / d.Top
	}
	return d.entered.Computes()
}

// Expected returns 1.
func (d *dispatch) Expected() float64 { return 1 }

// Repeats reports whether what passes call depends on the batch alone: unless experts are
// forced, which the host does.
func (d *dispatch) Repeats() bool { return d.layer.forced == nil }

// rowsOf returns the rows of the assignments of an expert.
func (d *dispatch) rowsOf(expert int) segment {
	return segment{int(d.ends[expert]), int(d.ends[expert+1])}
}

// segment is rows [lo, hi).
type segment struct{ lo, hi int }

func (s segment) count() int { return s.hi - s.lo }

// meets returns the rows that both have, and whether there are any.
func (s segment) meets(other segment) (both segment, any bool) {
	both = segment{max(s.lo, other.lo), min(s.hi, other.hi)}
	return both, both.lo < both.hi
}

// block is rows on which an expert, by its number among those here, works in one product.
type block struct {
	expert int
	segment
}

// The device decides where tokens go (see kernel.RouteTokens). p is the softmax of a token's logits
// over all experts. The token goes to the Top experts of the largest p, with the weights g = p / Σ
// p over these (Jiang et al. 2024). If assignments are balanced it goes to those of the largest
// scores of kernel.BalanceScores, with the weights p (Clark et al. 2022, S-BASE). All weights are
// multiplied by Scale. The logits are those of the router. A squashed router has the logits
// outer·tanh(a), with a the product of its first matrix and the token.
//
// Departs: S-BASE has no Deviation, to which logits are stretched before they are scaled, and names
// no number of Rounds.
//
// Departs: the loss that balances experts is one of each block and microbatch, as in the Switch
// Transformer (Fedus et al. 2022, equation 4). Each of a token's Top choices counts as one. Hugging
// Face's loss is one of all blocks together (see Experts.coefficient).

// routeTokens decides where n tokens go, from the output of the router's first matrix. Those of a
// text go to the experts of the largest p, also if assignments are balanced.
func (e *experts) routeTokens(x *model.Exec, n int, s expertsSaved) {
	logits, scores := s.logits, tensor.Mem{}
	if e.Squashed {
		x.Backend.SquashLogits(x.Stream, s.router, s.squashed, s.logits, e.outer.W.W, n, e.Count)
		logits = tensor.Mem{} // in router
	}
	if e.Balanced && x.Text == nil {
		x.Backend.BalanceScores(x.Stream, e.routing(n), s.router, logits, n, e.Count)
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

// routing returns the settings of the router in a microbatch of the given number of tokens.
func (e Experts) routing(tokens int) kernel.Routing {
	r := kernel.Routing{Room: e.room(tokens), Shares: !e.Balanced, Scale: cmp.Or(e.Scale, 1), Auxiliary: e.Auxiliary, Z: e.Z, Deviation: e.Deviation, Rounds: e.Rounds}
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
