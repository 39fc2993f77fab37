package moe

import (
	"dynmo/src/model"
	"dynmo/src/tensor"
)

func (e *experts) Forward(x *model.Exec, b *model.Batch, saved, inp tensor.Mem) error {
	n, d := b.Queries, b.Work.(*dispatch)
	s := e.saved(x, x.Cut(b, saved)).with(d)
	b.Carry(x, s.out, inp)
	inp, out := b.QueryRows(inp), b.QueryRows(s.out)
	e.norm.Forward(x, n, s.normed, s.mean, s.rstd, inp)
	e.router.Forward(x, n, s.logits, s.normed)
	e.routeTokens(x, n, s)
	if err := e.force(x, n, d, s); err != nil {
		return err
	}
	if err := e.dispatch(x, b, s); err != nil {
		return err
	}
	return e.forwardExperts(x, n, d, s, out, inp)
}

// forwardExperts sets out to inp and what the experts make of normed, all of n rows.
func (e *experts) forwardExperts(x *model.Exec, n int, d *dispatch, s expertsSaved, out, inp tensor.Mem) error {
	assigned := e.assigned(d, n)
	sent, made := e.outgoing(x, s.inp, s.made)
	received := x.Repeats && e.Spread > 0 // by the first forward
	if assigned > 0 && !received {
		tokens, _ := s.decided.of(x, assigned)
		x.Backend.GatherRows(x.Stream, first(x, sent, assigned, e.hidden), s.normed, tokens, tensor.Mem{}, assigned, e.hidden)
	}
	if !received {
		if err := e.exchange(x, d, there, sent, s.inp); err != nil {
			return err
		}
	}
	e.work(x, d, s, made, assigned)
	if !received {
		if err := e.exchange(x, d, back, s.made, made); err != nil {
			return err
		}
	}
	if assigned == 0 {
		x.Stream.Copy(out, inp)
		return nil
	}
	x.Backend.CombineRowsAdd(x.Stream, out, first(x, s.made, assigned, e.hidden), s.decided.places, s.decided.weights, inp, n, e.Top, e.hidden)
	return nil
}

// work sets made to the output of the experts here for inp, which has at most the given number of
// rows.
func (e *experts) work(x *model.Exec, d *dispatch, s expertsSaved, made tensor.Mem, rows int) {
	if e.grouped() {
		e.groupedForward(x, s, made, rows)
		return
	}
	e.each(d, func(m mlpOf, rows segment) {
		gateup, active := rowRange(x, s.gateup, rows, 2*e.inside), rowRange(x, s.active, rows, e.inside)
		m.gateup.Forward(x, rows.count(), gateup, rowRange(x, s.inp, rows, e.hidden))
		x.Backend.SwiGLUForward(x.Stream, active, gateup, rows.count(), e.inside)
		m.down.Forward(x, rows.count(), rowRange(x, made, rows, e.hidden), active)
	})
}

// each calls f for every block of rows that an expert here works on.
func (e *experts) each(d *dispatch, f func(m mlpOf, rows segment)) {
	for _, b := range d.blocks {
		f(e.list[b.expert], b.segment)
	}
}

// rowRange returns some rows of memory whose rows have `width` values.
func rowRange(x *model.Exec, m tensor.Mem, rows segment, width int) tensor.Mem {
	row := int64(width) * x.Backend.DType().Size()
	return m.Span(int64(rows.lo)*row, int64(rows.count())*row)
}

// first returns the first rows.
func first(x *model.Exec, m tensor.Mem, rows, width int) tensor.Mem {
	return rowRange(x, m, segment{0, rows}, width)
}

func (e *experts) BackwardInput(x *model.Exec, b *model.Batch, saved, held, inp, dout, din tensor.Mem) error {
	h, n, d := e.held(x, x.Cut(b, held)), b.Queries, b.Work.(*dispatch)
	s := e.saved(x, x.Cut(b, saved)).with(d)
	b.Carry(x, din, dout)
	dout = b.QueryRows(dout)
	e.weightGradients(x, b, s, h, dout)
	e.routeGradient(x, n, s, h)
	if err := e.backwardExperts(x, n, d, s, h, dout); err != nil {
		return err
	}
	e.addPassed(x, n, d, s, h.dnormed)
	e.norm.BackwardInputTo(x, n, b.QueryRows(din), dout, h.dnormed, b.QueryRows(inp), s.mean, s.rstd)
	return nil
}

// backwardExperts sets dmade and dgateup, and made to the gradient of what the assignments
// took to their experts.
func (e *experts) backwardExperts(x *model.Exec, n int, d *dispatch, s expertsSaved, h expertsHeld, dout tensor.Mem) error {
	assigned := e.assigned(d, n)
	sent, dinp := e.outgoing(x, h.dmade, s.made)
	if assigned > 0 {
		tokens, factors := s.decided.of(x, assigned)
		x.Backend.GatherRows(x.Stream, first(x, sent, assigned, e.hidden), dout, tokens, factors, assigned, e.hidden)
	}
	if err := e.exchange(x, d, there, sent, h.dmade); err != nil {
		return err
	}
	if e.grouped() {
		e.groupedBackwardInput(x, s, h, dinp, assigned)
		return nil
	}
	e.each(d, func(m mlpOf, rows segment) {
		dactive, dgateup := first(x, x.Scratch, rows.count(), e.inside), rowRange(x, h.dgateup, rows, 2*e.inside)
		m.down.BackwardInput(x, rows.count(), dactive, rowRange(x, h.dmade, rows, e.hidden))
		x.Backend.SwiGLUBackward(x.Stream, dgateup, dactive, rowRange(x, s.gateup, rows, 2*e.inside), rows.count(), e.inside)
		m.gateup.BackwardInput(x, rows.count(), rowRange(x, dinp, rows, e.hidden), dgateup)
	})
	return e.exchange(x, d, back, s.made, dinp)
}

// addPassed adds to dnormed what backwardExperts has left in made.
func (e *experts) addPassed(x *model.Exec, n int, d *dispatch, s expertsSaved, dnormed tensor.Mem) {
	assigned := e.assigned(d, n)
	if assigned == 0 {
		return
	}
	passed := first(x, x.Scratch, n, e.hidden)
	x.Backend.CombineRows(x.Stream, passed, first(x, s.made, assigned, e.hidden), s.decided.places, tensor.Mem{}, n, e.Top, e.hidden)
	x.Backend.Add(x.Stream, dnormed, dnormed, passed, n*e.hidden)
}

// weightGradients sets dweights to the gradients of the weights of choices. It works on made
// as it was forward.
func (e *experts) weightGradients(x *model.Exec, b *model.Batch, s expertsSaved, h expertsHeld, dout tensor.Mem) {
	n := b.Queries
	if assigned := e.assigned(b.Work.(*dispatch), n); assigned > 0 {
		x.Backend.CombineGradient(x.Stream, h.dweights, dout, first(x, s.made, assigned, e.hidden), s.decided.places, n, e.Top, e.hidden)
	} else {
		x.Stream.Zero(h.dweights)
	}
}

func (e *experts) BackwardWeight(x *model.Exec, b *model.Batch, saved, held, inp, dout tensor.Mem) error {
	h, n, d := e.held(x, x.Cut(b, held)), b.Queries, b.Work.(*dispatch)
	s := e.saved(x, x.Cut(b, saved)).with(d)
	e.routerWeights(x, n, s, h, b.QueryRows(inp))
	e.expertWeights(x, n, d, s, h)
	return nil
}

// routerWeights adds to the gradients of router and norm.
func (e *experts) routerWeights(x *model.Exec, n int, s expertsSaved, h expertsHeld, inp tensor.Mem) {
	e.router.BackwardWeight(x, n, h.dlogits, s.normed)
	if e.Squashed {
		e.outer.BackwardWeight(x, n, h.dscores, s.squashed)
	}
	e.norm.BackwardWeight(x, n, h.dnormed, inp, s.mean, s.rstd)
}

// expertWeights adds to the gradients of the experts' matrices.
func (e *experts) expertWeights(x *model.Exec, n int, d *dispatch, s expertsSaved, h expertsHeld) {
	if e.grouped() {
		e.groupedBackwardWeight(x, s, h, e.assigned(d, n))
		return
	}
	e.each(d, func(m mlpOf, rows segment) {
		e.weightProduct(x, m.down, rows.count(), rowRange(x, h.dmade, rows, e.hidden), rowRange(x, s.active, rows, e.inside))
		e.weightProduct(x, m.gateup, rows.count(), rowRange(x, h.dgateup, rows, 2*e.inside), rowRange(x, s.inp, rows, e.hidden))
	})
}
