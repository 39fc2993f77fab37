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

// forwardExperts sets out (n, C) to inp plus the experts' weighted outputs for the rows of normed. A
// second forward of spread experts exchanges nothing: the rows of the first forward are still there.
func (e *experts) forwardExperts(x *model.Exec, n int, d *dispatch, s expertsSaved, out, inp tensor.Mem) error {
	assigned := e.assigned(d, n)
	sent, computed := e.outgoing(x, s.inp, s.outputs)
	received := x.Repeats && e.Spread > 0
	if assigned > 0 && !received {
		tokens, _ := s.decided.firstRows(x, assigned)
		x.Backend.GatherRows(x.Stream, firstRows(x, sent, assigned, e.hidden), s.normed, tokens, tensor.Mem{}, assigned, e.hidden)
	}
	if !received {
		if err := e.exchange(x, d, toExperts, sent, s.inp); err != nil {
			return err
		}
	}
	e.runExperts(x, d, s, computed, assigned)
	if !received {
		if err := e.exchange(x, d, toTokens, s.outputs, computed); err != nil {
			return err
		}
	}
	if assigned == 0 {
		x.Stream.Copy(out, inp)
		return nil
	}
	x.Backend.CombineRowsAdd(x.Stream, out, firstRows(x, s.outputs, assigned, e.hidden), s.decided.places, s.decided.weights, inp, n, e.Top, e.hidden)
	return nil
}

// runExperts sets computed to the outputs of this rank's experts for s.inp, row by row. s.inp has at most
// the given number of rows.
func (e *experts) runExperts(x *model.Exec, d *dispatch, s expertsSaved, computed tensor.Mem, rows int) {
	if e.grouped() {
		e.groupedForward(x, s, computed, rows)
		return
	}
	e.eachBlock(d, func(m mlpOf, rows segment) {
		gateup, active := rowRange(x, s.gateup, rows, 2*e.inside), rowRange(x, s.active, rows, e.inside)
		m.gateup.Forward(x, rows.count(), gateup, rowRange(x, s.inp, rows, e.hidden))
		x.Backend.SwiGLUForward(x.Stream, active, gateup, rows.count(), e.inside)
		m.down.Forward(x, rows.count(), rowRange(x, computed, rows, e.hidden), active)
	})
}

// eachBlock calls f for every block of rows of this rank, with the expert that works on it.
func (e *experts) eachBlock(d *dispatch, f func(m mlpOf, rows segment)) {
	for _, b := range d.blocks {
		f(e.list[b.expert], b.segment)
	}
}

// rowRange returns rows [rows.lo, rows.hi) of m. A row has `width` values of the backend's type.
func rowRange(x *model.Exec, m tensor.Mem, rows segment, width int) tensor.Mem {
	row := int64(width) * x.Backend.DType().Size()
	return m.Span(int64(rows.lo)*row, int64(rows.count())*row)
}

// firstRows returns rows [0, rows) of m (see rowRange).
func firstRows(x *model.Exec, m tensor.Mem, rows, width int) tensor.Mem {
	return rowRange(x, m, segment{0, rows}, width)
}

func (e *experts) BackwardInput(x *model.Exec, b *model.Batch, saved, held, inp, dout, din tensor.Mem) error {
	h, n, d := e.held(x, x.Cut(b, held)), b.Queries, b.Work.(*dispatch)
	s := e.saved(x, x.Cut(b, saved)).with(d)
	b.Carry(x, din, dout)
	dout = b.QueryRows(dout)
	e.choiceGradients(x, b, s, h, dout)
	e.routeGradient(x, n, s, h)
	if err := e.backwardExperts(x, n, d, s, h, dout); err != nil {
		return err
	}
	e.addExpertGradients(x, n, d, s, h.dnormed)
	e.norm.BackwardInputTo(x, n, b.QueryRows(din), dout, h.dnormed, b.QueryRows(inp), s.mean, s.rstd)
	return nil
}

// backwardExperts sets doutputs and dgateup from dout. It overwrites outputs with the gradient of each
// assignment's input, by place.
func (e *experts) backwardExperts(x *model.Exec, n int, d *dispatch, s expertsSaved, h expertsHeld, dout tensor.Mem) error {
	assigned := e.assigned(d, n)
	sent, dinp := e.outgoing(x, h.doutputs, s.outputs)
	if assigned > 0 {
		tokens, factors := s.decided.firstRows(x, assigned)
		x.Backend.GatherRows(x.Stream, firstRows(x, sent, assigned, e.hidden), dout, tokens, factors, assigned, e.hidden)
	}
	if err := e.exchange(x, d, toExperts, sent, h.doutputs); err != nil {
		return err
	}
	if e.grouped() {
		e.groupedBackwardInput(x, s, h, dinp, assigned)
		return nil
	}
	e.eachBlock(d, func(m mlpOf, rows segment) {
		dactive, dgateup := firstRows(x, x.Scratch, rows.count(), e.inside), rowRange(x, h.dgateup, rows, 2*e.inside)
		m.down.BackwardInput(x, rows.count(), dactive, rowRange(x, h.doutputs, rows, e.hidden))
		x.Backend.SwiGLUBackward(x.Stream, dgateup, dactive, rowRange(x, s.gateup, rows, 2*e.inside), rows.count(), e.inside)
		m.gateup.BackwardInput(x, rows.count(), rowRange(x, dinp, rows, e.hidden), dgateup)
	})
	return e.exchange(x, d, toTokens, s.outputs, dinp)
}

// addExpertGradients adds to dnormed (n, C) the gradients that backwardExperts left in outputs.
func (e *experts) addExpertGradients(x *model.Exec, n int, d *dispatch, s expertsSaved, dnormed tensor.Mem) {
	assigned := e.assigned(d, n)
	if assigned == 0 {
		return
	}
	sums := firstRows(x, x.Scratch, n, e.hidden) // by token
	x.Backend.CombineRows(x.Stream, sums, firstRows(x, s.outputs, assigned, e.hidden), s.decided.places, tensor.Mem{}, n, e.Top, e.hidden)
	x.Backend.Add(x.Stream, dnormed, dnormed, sums, n*e.hidden)
}

// choiceGradients sets dweights (n, Top) to the gradients of the weights of choices. It reads outputs, so
// it must run before backwardExperts overwrites them.
func (e *experts) choiceGradients(x *model.Exec, b *model.Batch, s expertsSaved, h expertsHeld, dout tensor.Mem) {
	n := b.Queries
	if assigned := e.assigned(b.Work.(*dispatch), n); assigned > 0 {
		x.Backend.CombineGradient(x.Stream, h.dweights, dout, firstRows(x, s.outputs, assigned, e.hidden), s.decided.places, n, e.Top, e.hidden)
	} else {
		x.Stream.Zero(h.dweights)
	}
}

func (e *experts) BackwardWeight(x *model.Exec, b *model.Batch, saved, held, inp, dout tensor.Mem) error {
	h, n, d := e.held(x, x.Cut(b, held)), b.Queries, b.Work.(*dispatch)
	s := e.saved(x, x.Cut(b, saved)).with(d)
	e.routerWeightGradients(x, n, s, h, b.QueryRows(inp))
	e.expertWeightGradients(x, n, d, s, h)
	return nil
}

// routerWeightGradients adds to the gradients of the parameters of the router and the norm.
func (e *experts) routerWeightGradients(x *model.Exec, n int, s expertsSaved, h expertsHeld, inp tensor.Mem) {
	e.router.BackwardWeight(x, n, h.dlogits, s.normed)
	if e.Squashed {
		e.outer.BackwardWeight(x, n, h.dscores, s.squashed)
	}
	e.norm.BackwardWeight(x, n, h.dnormed, inp, s.mean, s.rstd)
}

// expertWeightGradients adds to the gradients of the experts' matrices.
func (e *experts) expertWeightGradients(x *model.Exec, n int, d *dispatch, s expertsSaved, h expertsHeld) {
	if e.grouped() {
		e.groupedBackwardWeight(x, s, h, e.assigned(d, n))
		return
	}
	e.eachBlock(d, func(m mlpOf, rows segment) {
		e.weightProduct(x, m.down, rows.count(), rowRange(x, h.doutputs, rows, e.hidden), rowRange(x, s.active, rows, e.inside))
		e.weightProduct(x, m.gateup, rows.count(), rowRange(x, h.dgateup, rows, 2*e.inside), rowRange(x, s.inp, rows, e.hidden))
	})
}
