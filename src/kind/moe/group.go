package moe

import (
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// expertGroup is some of a block's experts (see experts) as a layer of its own. Each adds
// to the sum that enters it what its experts make of the tokens,
//
//	out = inp + Σ_e g_e·down_e(silu(gate)·up)  over the experts e of the group that a token goes to
//
// the first to what enters the block's second half. The first has norm and router; it and
// those behind it pass on what the others need of these (see groupCrossing).
type expertGroup struct {
	experts
	last bool
}

func newExpertGroup(c model.Config, kind Experts, block, k int) *expertGroup {
	at := kind.on(c)
	each := at.here()
	g := &expertGroup{experts{divided: at, hidden: c.Hidden, inside: c.Intermediate, lo: k * each}, k == kind.Groups-1}
	if g.first() {
		g.norm = c.NewNorm(model.InBlock(block), "norm2")
		g.router, g.outer = kind.newRouter(c, block)
	}
	for k := range each {
		g.list = append(g.list, newMLP(c, block, g.lo+k))
	}
	return g
}

func (g *expertGroup) first() bool { return g.lo == 0 }

func (g *expertGroup) Leaves() model.Width {
	if g.last {
		return model.Width{Values: g.hidden}
	}
	return model.Width{Values: 2 * g.hidden, Statistics: 2 * g.Top}
}

// groupCrossing is what passes between two groups of a block: forward the sum so far,
// normed rows (n, C), and routing: weights, wide, and numbers, I32, of each token's experts,
// (n, Top); backward the gradients of sum, normed and weights. All but sum are of the tokens
// that have not departed.
type groupCrossing struct{ sum, normed, routing, weights, chosen tensor.Mem }

func (g *expertGroup) crossing(x *model.Exec, b *model.Batch, m tensor.Mem) groupCrossing {
	if m.IsZero() || b.Tokens == 0 {
		return groupCrossing{}
	}
	c := model.Cutter{Mem: m, Tokens: b.Tokens, Capacity: b.Tokens}
	values, routing := c.Rows(2*g.hidden, x.Backend.DType()), c.Rows(2*g.Top, tensor.F64)
	half, weights, chosen := values.Bytes/2, int64(b.Queries*g.Top)*x.Backend.DType().Wide().Size(), int64(b.Queries*g.Top)*tensor.I32.Size()
	return groupCrossing{
		sum: values.Span(0, half), normed: b.QueryRows(values.Span(half, half)), routing: routing.Span(0, weights+chosen),
		weights: routing.Span(0, weights), chosen: routing.Span(weights, chosen),
	}
}

// entering returns what enters the group, or the gradient of that.
func (g *expertGroup) entering(x *model.Exec, b *model.Batch, m tensor.Mem) groupCrossing {
	if g.first() {
		return groupCrossing{sum: m}
	}
	return g.crossing(x, b, m)
}

// leaving returns what leaves the group, or the gradient of that.
func (g *expertGroup) leaving(x *model.Exec, b *model.Batch, m tensor.Mem) groupCrossing {
	if g.last {
		return groupCrossing{sum: m}
	}
	return g.crossing(x, b, m)
}

// saved leaves out normed, which is part of what enters or of what leaves.
func (g *expertGroup) saved(x *model.Exec, c *model.Cutter) (s expertsSaved) {
	all := c.Tokens
	c.Tokens = c.Queries
	if g.first() {
		s.mean, s.rstd = g.norm.Statistics(x, c)
		g.cutLogits(x, c, &s)
	}
	g.cutAssigned(x, c, &s)
	c.Tokens = all
	s.out = c.Boundary(x, g.Leaves())
	return s
}

func (g *expertGroup) held(x *model.Exec, c *model.Cutter) (h expertsHeld) {
	c.Tokens = c.Queries
	if g.first() {
		g.cutGradients(x, c, &h)
	}
	g.cutWorked(x, c, &h)
	return h
}

func (g *expertGroup) Memory(x *model.Exec, b *model.Batch, saved, held tensor.Mem) (tensor.Mem, int64, int64) {
	cs, ch := x.Cut(b, saved), x.Cut(b, held)
	s := g.saved(x, cs)
	g.held(x, ch)
	return s.out, cs.Off, ch.Off
}

// groupRows is the name of a reading of a group of experts, I32: the rows that its experts
// worked on.
const groupRows = "rows"

// Readings are groupRows, and the first group's of all experts.
func (g *expertGroup) Readings() []model.Reading {
	rows := []model.Reading{{Name: groupRows, Values: 1, Worked: g.share}}
	if g.first() {
		rows = append(rows, g.experts.Readings()...)
	}
	return rows
}

func (g *expertGroup) Reading(x *model.Exec, b *model.Batch, saved tensor.Mem, index int) tensor.Mem {
	decided := g.saved(x, x.Cut(b, saved)).decided
	if index > 0 {
		return decided.readings
	}
	size := tensor.I32.Size()
	return decided.ends.Span(decided.ends.Bytes-size, size)
}

// share returns the number of tokens whose fair share is the given number of rows of a group.
func (e Experts) share(rows int) int { return rows * e.Groups / e.Top }
