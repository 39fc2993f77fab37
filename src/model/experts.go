package model

import (
	"fmt"
	"slices"
	"strings"

	"dynmo/src/config"
	"dynmo/src/tensor"
)

// Experts are gated MLPs in place of every block's one (Shazeer et al. 2017), of which
// each token takes a few. The zero value has none.
type Experts struct {
	Count, Top int     // experts of a block; those that a token goes to
	Balanced   bool    // assignments are balanced (S-BASE); else a loss balances them
	Auxiliary  float64 // weight of that loss
	Z          float64 // weight of the router's z-loss
	Capacity   float64 // times its fair share that an expert takes of a microbatch's assignments; 0: all
	Scale      float64 // of the weights of choices; 0: 1
	Squashed   bool    // the router is two matrices with tanh between, not one (Zhu et al. 2024)
	Groups     int     // layers that the experts of a block are cut into (see expertGroup); 0: one with the rest of its second half
	Spread     int     // replicas of a stage that share the experts out (see expert_spread.go); 0: each has all
}

// expertsOf returns the experts of the settings.
func expertsOf(c config.Config) Experts {
	if !c.Dynamic.Has("moe") {
		return Experts{}
	}
	m := c.Moe
	e := Experts{
		Count: m.Experts, Top: m.Top, Balanced: m.Balance == "s-base", Auxiliary: m.Aux, Z: m.Z, Capacity: m.Capacity,
		Scale: m.Scale, Squashed: m.Router == "mlp",
	}
	if c.Model.Grain == "expert" {
		e.Groups = m.Groups
	}
	if c.Spread() {
		e.Spread = c.Parallel.Replicas
	}
	return e
}

// whole returns the experts of a block that is not cut into groups.
func (e Experts) whole() Experts {
	e.Groups = 0
	return e
}

// experts is the second half of a block with a mixture of experts (Jiang et al. 2024):
//
//	gate, up = gateup_e(norm(inp))
//	out      = inp + Σ_e g_e·down_e(silu(gate)·up)  over the experts e that a token goes to
//
// with e and the weights g as the router has them (see Experts.route). Tokens
// are sorted by expert, so that each has one product on its rows; a token's sum is in the
// order of its choices. One expert of top 1 is a block with a gated MLP.
type experts struct {
	Basic
	Experts
	hidden, inside int
	norm           Norm
	router         Linear  // (Count, C)
	outer          Linear  // (Count, Count) behind it, and tanh; absent unless Squashed
	lo             int     // the first expert of list in the block, but where they are spread
	list           []mlpOf // by expert that is here
}

// mlpOf is the matrices of an expert.
type mlpOf struct{ gateup, down Linear }

func newExperts(c Config, block int) *experts {
	router := "router"
	if c.Depths.routes(block) {
		router = "experts.router" // the block has another
	}
	e := &experts{
		Experts: c.Experts.whole(), hidden: c.Hidden, inside: c.Intermediate,
		norm: c.NewNorm(InBlock(block), "norm2"),
	}
	e.router, e.outer = c.newRouter(block, router)
	for _, p := range append(e.router.Params(), e.outer.Params()...) {
		p.File = strings.Replace(p.File, "/experts.router.", "/router.", 1)
	}
	e.list = c.newMLPs(block, e.firstOf(c.Replica), e.here())
	return e
}

// newRouter returns the matrices of the router of a block's experts.
func (c Config) newRouter(block int, name string) (router, outer Linear) {
	at, d := InBlock(block), c.Deviation(block)
	router.W = at.Param(name+".weight", c.Experts.Count, c.Hidden, RoleDecayed, d)
	if c.Experts.Squashed {
		outer.W = at.Param(name+".outer.weight", c.Experts.Count, c.Experts.Count, RoleDecayed, d)
	}
	return router, outer
}

// newMLPs returns the matrices of so many experts of a block, from a first one on.
func (c Config) newMLPs(block, first, count int) (list []mlpOf) {
	at, d := InBlock(block), c.Deviation(block)
	for k := first; k < first+count; k++ {
		name := fmt.Sprintf("expert.%d.", k)
		m := mlpOf{
			gateup: c.NewLinear(at, name+"gateup", 2*c.Intermediate, c.Hidden, d),
			down:   c.NewLinear(at, name+"down", c.Hidden, c.Intermediate, c.Residual(d)),
		}
		for _, p := range m.Params() {
			p.Own = c.Experts.Spread > 0
		}
		list = append(list, m)
	}
	return list
}

func (m mlpOf) Params() []*Param { return slices.Concat(m.gateup.Params(), m.down.Params()) }

func (e *experts) Params() []*Param {
	list := slices.Concat(e.norm.Params(), e.router.Params(), e.outer.Params())
	for _, m := range e.list {
		list = append(list, m.Params()...)
	}
	return list
}

func (e *experts) Leaves() Width { return Width{Values: e.hidden} }

// ExpertCounts is the name of what a block with experts leaves for the host: the tokens
// that are there; the assignments that are dropped; the router's own losses, summed over
// the tokens, in thousandths: Count·Σ f·P and lse²; and the tokens of each expert. The
// losses are no part of the one that is reported.
const ExpertCounts = "experts"

// ExpertsFrom is where in these values the tokens of the first expert are.
const ExpertsFrom = 4

func (e *experts) Readings() []Reading {
	return []Reading{{Name: ExpertCounts, Values: ExpertsFrom + e.Count}}
}

func (e *experts) Reading(x *Exec, b *Batch, saved tensor.Mem, _ int) tensor.Mem {
	return e.saved(x, x.Cut(b, saved)).decided.readings
}

// assignments is what passes need of where tokens go: by place the token and its weight, by
// token and choice the place and the weight, by expert where its places begin.
type assignments struct {
	tokens, factors, places, weights, ends tensor.Mem
	readings                               tensor.Mem
}

// assignable returns the most assignments of so many tokens that have a place.
func (e Experts) assignable(tokens int) int {
	if e.Groups > 0 {
		return e.rows(tokens)
	}
	return tokens * e.Top
}

// placed returns how many experts assignments have a place at: those of a group, else all
// of a block, wherever they are.
func (e Experts) placed() int { return e.Count / max(1, e.Groups) }

func (e *experts) assignments(x *Exec, c *Cutter) (a assignments) {
	wide := x.Backend.DType().Wide()
	a.tokens, a.factors = c.Rows(e.Top, tensor.I32), c.Rows(e.Top, wide)
	a.places, a.weights = c.Rows(e.Top, tensor.I32), c.Rows(e.Top, wide)
	a.ends, a.readings = c.Take(e.placed()+1, tensor.I32), c.Take(ExpertsFrom+e.Count, tensor.F64)
	return a
}

// of returns tokens and factors of the first assignments that have a place.
func (a assignments) of(x *Exec, assigned int) (tokens, factors tensor.Mem) {
	return a.tokens.Span(0, int64(assigned)*tensor.I32.Size()), a.factors.Span(0, int64(assigned)*x.Backend.DType().Wide().Size())
}

// expertsBytes returns the memory of the host in which passes are told the rows of each
// expert, where they wait for that.
func (x *Exec) expertsBytes(c Config) int64 {
	if c.Experts.Count == 0 {
		return 0
	}
	return int64(c.Experts.Count+1) * tensor.I32.Size()
}

// expertsSaved: inp, gateup and active are of the rows that the experts here work on, made
// of the assignments, by place: what their experts made of them. A backward for inputs
// leaves in made the gradient of inp.
type expertsSaved struct {
	mean, rstd, normed, logits, squashed, inp, gateup, active, made, out tensor.Mem
	decided                                                              assignments
	chosen, router                                                       tensor.Mem // of RouteTokens
}

func (e *experts) saved(x *Exec, c *Cutter) (s expertsSaved) {
	d, all := x.Backend.DType(), c.Tokens
	c.Tokens = c.Queries
	s.mean, s.rstd = e.norm.Statistics(x, c)
	s.normed = c.Rows(e.hidden, d)
	e.cutLogits(x, c, &s)
	e.cutAssigned(x, c, &s)
	c.Tokens = all
	s.out = c.Rows(e.hidden, d)
	return s
}

// cutLogits takes what is of the router.
func (e *experts) cutLogits(x *Exec, c *Cutter, s *expertsSaved) {
	s.logits = c.Rows(e.Count, x.Backend.DType())
	s.chosen, s.router = c.Rows(e.Top, tensor.I32), c.Rows(2*e.Count, tensor.F64)
	if e.Squashed {
		s.squashed = c.Rows(e.Count, x.Backend.DType())
	}
}

// cutAssigned takes what is of assignments, and of rows that the experts here work on.
func (e *experts) cutAssigned(x *Exec, c *Cutter, s *expertsSaved) {
	d, most, rows := x.Backend.DType(), e.assignable(c.Capacity), e.rows(c.Capacity)
	s.decided = e.assignments(x, c)
	s.inp, s.gateup, s.active, s.made = c.Take(rows*e.hidden, d), c.Take(2*rows*e.inside, d), c.Take(rows*e.inside, d), c.Take(most*e.hidden, d)
}

// expertsHeld: dlogits are the gradients of what the router's first matrix makes, dscores of
// what the outer one does.
type expertsHeld struct{ dnormed, dlogits, dscores, dmade, dgateup, dweights tensor.Mem }

func (e *experts) held(x *Exec, c *Cutter) (h expertsHeld) {
	c.Tokens = c.Queries
	e.cutGradients(x, c, &h)
	e.cutWorked(x, c, &h)
	return h
}

// cutGradients takes what is of the norm and the router.
func (e *experts) cutGradients(x *Exec, c *Cutter, h *expertsHeld) {
	d := x.Backend.DType()
	h.dnormed, h.dlogits = c.Rows(e.hidden, d), c.Rows(e.Count, d)
	if e.Squashed {
		h.dscores = c.Rows(e.Count, d)
	}
}

// cutWorked takes what is of the weights of choices, and of rows that the experts here work
// on.
func (e *experts) cutWorked(x *Exec, c *Cutter, h *expertsHeld) {
	d, rows := x.Backend.DType(), e.rows(c.Capacity)
	h.dweights = c.Rows(e.Top, d.Wide())
	h.dmade, h.dgateup = c.Take(rows*e.hidden, d), c.Take(2*rows*e.inside, d)
}

func (e *experts) Memory(x *Exec, b *Batch, saved, held tensor.Mem) (tensor.Mem, int64, int64) {
	cs, ch := x.Cut(b, saved), x.Cut(b, held)
	s := e.saved(x, cs)
	e.held(x, ch)
	return s.out, cs.Off, ch.Off
}
