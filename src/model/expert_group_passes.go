package model

import "dynmo/src/tensor"

func (g *expertGroup) forward(x *Exec, b *Batch, saved, inp tensor.Mem) error {
	s := g.saved(x, x.cut(b, saved))
	before, behind := g.entering(x, b, inp), g.leaving(x, b, s.out)
	b.carry(x, behind.sum, before.sum)
	sum, out := b.computed(before.sum), b.computed(behind.sum)
	dispatch := g.follow
	if g.first() {
		dispatch = g.lead
	}
	if err := dispatch(x, b, &s, before, behind); err != nil {
		return err
	}
	return g.forwardExperts(x, b.live(), b.Dispatch, s, out, sum)
}

// lead is how the first group dispatches tokens: it decides where they go, and tells the
// others.
func (g *expertGroup) lead(x *Exec, b *Batch, s *expertsSaved, before, behind groupCrossing) error {
	s.normed = behind.normed
	g.norm.forward(x, b.live(), s.normed, s.mean, s.rstd, b.computed(before.sum))
	g.router.forward(x, b.live(), s.logits, s.normed)
	host, err := g.decide(x, b, *s)
	if err != nil {
		return err
	}
	b.Dispatch.writeRouting(g.Experts, tensor.Of[float64](host.routing))
	x.Stream.Copy(behind.routing, host.routing)
	b.Dispatch.place(g.Top, g.lo, g.lo+len(g.list))
	g.write(x, b.Dispatch, host.assignments, s.decided)
	return nil
}

// follow is how the others do, which take over where tokens go. It waits for that.
func (g *expertGroup) follow(x *Exec, b *Batch, s *expertsSaved, before, behind groupCrossing) error {
	s.normed = before.normed
	host := g.onHost(x, x.cut(b, x.experts).alive())
	x.Stream.Copy(host.routing, before.routing)
	if !g.last {
		x.Stream.Copy(behind.normed, before.normed)
		x.Stream.Copy(behind.routing, before.routing)
	}
	if err := x.Stream.Sync(); err != nil {
		return err
	}
	b.Dispatch.readRouting(g.Experts, b.live(), tensor.Of[float64](host.routing))
	b.Dispatch.place(g.Top, g.lo, g.lo+len(g.list))
	g.write(x, b.Dispatch, host.assignments, s.decided)
	return nil
}

func (g *expertGroup) backwardInput(x *Exec, b *Batch, saved, held, inp, dout, din tensor.Mem) error {
	s, h := g.saved(x, x.cut(b, saved)), g.held(x, x.cut(b, held))
	before, behind := g.entering(x, b, din), g.leaving(x, b, dout)
	b.carry(x, before.sum, behind.sum)
	dsum := b.computed(behind.sum)
	g.weightGradients(x, b, s, h, dsum, behind)
	if err := g.backwardExperts(x, b.live(), b.Dispatch, s, h, dsum); err != nil {
		return err
	}
	switch {
	case g.first():
		return g.backwardFirst(x, b, s, h, inp, din, behind)
	case !din.IsZero():
		g.backwardOthers(x, b, s, h, before, behind)
	}
	return nil
}

// weightGradients sets dweights to the gradients of the weights from here on. It works on
// made as it was forward.
func (g *expertGroup) weightGradients(x *Exec, b *Batch, s expertsSaved, h expertsHeld, dsum tensor.Mem, behind groupCrossing) {
	n := b.live()
	if assigned := b.Dispatch.assigned(); assigned > 0 {
		x.Backend.CombineGradient(x.Stream, h.dweights, dsum, first(x, s.made, assigned, g.hidden), s.decided.places, n, g.Top, g.hidden)
	} else {
		x.Stream.Zero(h.dweights)
	}
	if !g.last {
		x.Backend.Accumulate(x.Stream, h.dweights, h.dweights, behind.dweights, n*g.Top)
	}
}

// backwardFirst goes on to the router and the norm. It waits for the gradients of the weights.
func (g *expertGroup) backwardFirst(x *Exec, b *Batch, s expertsSaved, h expertsHeld, inp, din tensor.Mem, behind groupCrossing) error {
	n := b.live()
	host := g.onHost(x, x.cut(b, x.experts).alive())
	x.Stream.Copy(host.dweights, h.dweights)
	if err := x.Stream.Sync(); err != nil {
		return err
	}
	g.backwardLogits(x, b, host, h)
	g.addPassed(x, n, b.Dispatch, s, h.dnormed)
	x.Backend.Add(x.Stream, h.dnormed, h.dnormed, behind.normed, n*g.hidden)
	g.norm.backwardInputTo(x, n, b.computed(din), b.computed(behind.sum), h.dnormed, b.computed(inp), s.mean, s.rstd)
	return nil
}

// backwardOthers passes on the gradients of the sum, normed rows and weights.
func (g *expertGroup) backwardOthers(x *Exec, b *Batch, s expertsSaved, h expertsHeld, before, behind groupCrossing) {
	x.Stream.Copy(b.computed(before.sum), b.computed(behind.sum))
	x.Stream.Copy(before.dweights, h.dweights)
	if g.last {
		x.Stream.Zero(before.normed)
	} else {
		x.Stream.Copy(before.normed, behind.normed)
	}
	g.addPassed(x, b.live(), b.Dispatch, s, before.normed)
}

func (g *expertGroup) backwardWeight(x *Exec, b *Batch, saved, held, inp, _ tensor.Mem) error {
	s, h := g.saved(x, x.cut(b, saved)), g.held(x, x.cut(b, held))
	if g.first() {
		s.normed = g.leaving(x, b, s.out).normed
		g.routerWeights(x, b.live(), s, h, b.computed(inp))
	}
	g.expertWeights(x, b.live(), b.Dispatch, s, h)
	return nil
}
