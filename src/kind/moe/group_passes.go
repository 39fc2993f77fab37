package moe

import (
	"dynmo/src/model"
	"dynmo/src/tensor"
)

func (g *expertGroup) Forward(x *model.Exec, b *model.Batch, saved, inp tensor.Mem) error {
	s := g.saved(x, x.Cut(b, saved))
	before, behind := g.entering(x, b, inp), g.leaving(x, b, s.out)
	b.Carry(x, behind.sum, before.sum)
	sum, out := b.QueryRows(before.sum), b.QueryRows(behind.sum)
	if g.first() {
		s.normed = behind.normed
		g.norm.Forward(x, b.Queries, s.normed, s.mean, s.rstd, sum)
		g.router.Forward(x, b.Queries, s.logits, s.normed)
		g.routeTokens(x, b.Queries, s)
		if err := g.force(x, b.Queries, b.Work.(*dispatch), s); err != nil {
			return err
		}
		x.Stream.Copy(behind.weights, s.decided.weights)
		x.Stream.Copy(behind.chosen, s.chosen)
	} else {
		s.normed, s.chosen, s.decided.weights = before.normed, before.chosen, before.weights
		if !g.last {
			x.Stream.Copy(behind.normed, before.normed)
			x.Stream.Copy(behind.routing, before.routing)
		}
	}
	if err := g.dispatch(x, b, s); err != nil {
		return err
	}
	return g.forwardExperts(x, b.Queries, b.Work.(*dispatch), s, out, sum)
}

func (g *expertGroup) BackwardInput(x *model.Exec, b *model.Batch, saved, held, inp, dout, din tensor.Mem) error {
	s, h := g.saved(x, x.Cut(b, saved)), g.held(x, x.Cut(b, held))
	before, behind := g.entering(x, b, din), g.leaving(x, b, dout)
	b.Carry(x, before.sum, behind.sum)
	dsum := b.QueryRows(behind.sum)
	g.choiceGradients(x, b, s, h, dsum)
	if !g.last {
		x.Backend.Accumulate(x.Stream, h.dweights, h.dweights, behind.weights, b.Queries*g.Top)
	}
	if err := g.backwardExperts(x, b.Queries, b.Work.(*dispatch), s, h, dsum); err != nil {
		return err
	}
	switch {
	case g.first():
		g.backwardFirst(x, b, s, h, inp, din, behind)
	case !din.IsZero():
		g.backwardOthers(x, b, s, h, before, behind)
	}
	return nil
}

// backwardFirst goes on to the router and the norm.
func (g *expertGroup) backwardFirst(x *model.Exec, b *model.Batch, s expertsSaved, h expertsHeld, inp, din tensor.Mem, behind groupCrossing) {
	n := b.Queries
	g.routeGradient(x, n, s, h)
	g.addExpertGradients(x, n, b.Work.(*dispatch), s, h.dnormed)
	x.Backend.Add(x.Stream, h.dnormed, h.dnormed, behind.normed, n*g.hidden)
	g.norm.BackwardInputTo(x, n, b.QueryRows(din), b.QueryRows(behind.sum), h.dnormed, b.QueryRows(inp), s.mean, s.rstd)
}

// backwardOthers passes on the gradients of the sum, normed rows and weights.
func (g *expertGroup) backwardOthers(x *model.Exec, b *model.Batch, s expertsSaved, h expertsHeld, before, behind groupCrossing) {
	x.Stream.Copy(b.QueryRows(before.sum), b.QueryRows(behind.sum))
	x.Stream.Copy(before.weights, h.dweights)
	if g.last {
		x.Stream.Zero(before.normed)
	} else {
		x.Stream.Copy(before.normed, behind.normed)
	}
	g.addExpertGradients(x, b.Queries, b.Work.(*dispatch), s, before.normed)
}

func (g *expertGroup) BackwardWeight(x *model.Exec, b *model.Batch, saved, held, inp, _ tensor.Mem) error {
	s, h := g.saved(x, x.Cut(b, saved)), g.held(x, x.Cut(b, held))
	if g.first() {
		s.normed = g.leaving(x, b, s.out).normed
		g.routerWeightGradients(x, b.Queries, s, h, b.QueryRows(inp))
	}
	g.expertWeightGradients(x, b.Queries, b.Work.(*dispatch), s, h)
	return nil
}
