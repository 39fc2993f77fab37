package model

import (
	"slices"
	"unsafe"

	"dynmo/src/tensor"
)

// Where all experts of a block are here the device decides where tokens go, and makes the
// products of all experts in one call: the host knows how many rows there are at most, and
// reads how many each expert had at the end of the step, with the other readings. Rows
// behind those that there are hold anything, and nothing reads them.

// waits reports whether the host decides, and waits for what it needs of the device: to
// know the lengths of messages between spread experts, of what passes between groups, to
// balance assignments, or for a squashed router.
func (e Experts) waits() bool { return e.Spread > 0 || e.Groups > 0 || e.Balanced || e.Squashed }

// Waits reports whether passes of the layer wait for the device to know which tokens a
// routed block takes, or where tokens go among experts.
func (l *Layer) Waits() bool { return slices.ContainsFunc(l.parts, waits) }

// waits reports whether a part waits, or one within it.
func waits(p part) bool {
	switch p := p.(type) {
	case *experts:
		return p.waits() || !p.grouped()
	case *expertGroup:
		return true
	case *routed:
		return p.Predictor || slices.ContainsFunc(p.block.parts, waits)
	case *pair:
		return slices.ContainsFunc(p.parts, waits)
	}
	return false
}

// assigned returns how many assignments have a place, of n tokens; where the device decides
// how many at most.
func (e *experts) assigned(d *Dispatch, n int) int {
	if e.waits() {
		return d.assigned()
	}
	return n * e.Top
}

// routeTokens decides on the device where tokens go. It waits only where pruned matrices have to
// know the rows of each expert.
func (e *experts) routeTokens(x *Exec, b *Batch, s expertsSaved) error {
	n, at := b.live(), s.decided
	x.Backend.RouteTokens(x.Stream, e.routing(n), s.chosen, at.weights, s.router, at.readings, s.logits, tensor.Mem{}, n, e.Count, e.Top)
	tokens, factors := at.of(x, n*e.Top)
	x.Backend.PlaceTokens(x.Stream, at.places, tokens, factors, at.ends, s.chosen, at.weights, n, e.Count, e.Top)
	b.Dispatch.tokens, b.Dispatch.left = n, [2]tensor.Mem{s.chosen, at.weights}
	if e.grouped() {
		return nil
	}
	ends := e.onHost(x, x.cut(b, x.experts).alive()).ends
	x.Stream.Copy(ends, at.ends)
	err := x.Stream.Sync()
	copy(b.Dispatch.ends, tensor.Of[int32](ends))
	return err
}

// routeGradient sets dlogits, and dnormed to what comes by the router.
func (e *experts) routeGradient(x *Exec, n int, s expertsSaved, h expertsHeld, dout tensor.Mem) {
	x.Backend.CombineGradient(x.Stream, h.dweights, dout, first(x, s.made, n*e.Top, e.hidden), s.decided.places, n, e.Top, e.hidden)
	r := e.routing(n)
	r.Loss = x.Scale
	x.Backend.RouteGradient(x.Stream, r, h.dlogits, h.dweights, s.chosen, s.router, n, e.Count, e.Top)
	e.router.backwardInput(x, n, h.dnormed, h.dlogits)
}

// grouped reports whether one call makes the products of all experts: they are here, their
// matrices dense and without biases, and all of them frozen or none.
func (e *experts) grouped() bool {
	if e.Spread > 0 || e.Groups > 0 {
		return false
	}
	frozen := e.list[0].down.w.Frozen
	for _, m := range e.list {
		for _, l := range []linear{m.gateup, m.down} {
			if l.w.Format.Sparse() || l.b != nil || l.w.Frozen != frozen {
				return false
			}
		}
	}
	return true
}

// matrices returns one matrix of every expert, from the first to the last, and how many
// elements lie between two.
func (e *experts) matrices(x *Exec, element int64, of func(m mlpOf) tensor.Mem) (all tensor.Mem, gap int) {
	all = of(e.list[0])
	if len(e.list) == 1 {
		return all, 0
	}
	stride := int64(uintptr(of(e.list[1]).Ptr) - uintptr(all.Ptr))
	gap = int((stride - all.Bytes) / element)
	all.Bytes += int64(len(e.list)-1) * stride
	if last := of(e.list[len(e.list)-1]); unsafe.Add(all.Ptr, all.Bytes-last.Bytes) != last.Ptr {
		panic("model: the matrices of experts are not evenly spaced")
	}
	return all, gap
}

// weights returns the matrices of all experts, gradients what is added to their gradients.
func (e *experts) weights(x *Exec, of func(m mlpOf) linear) (tensor.Mem, int) {
	return e.matrices(x, x.Backend.DType().Size(), func(m mlpOf) tensor.Mem { return of(m).w.W })
}

func (e *experts) gradients(x *Exec, of func(m mlpOf) linear) (tensor.Mem, int) {
	return e.matrices(x, x.Backend.DType().Wide().Size(), func(m mlpOf) tensor.Mem { return of(m).w.G })
}

func gateupOf(m mlpOf) linear { return m.gateup }
func downOf(m mlpOf) linear   { return m.down }

// groupedForward is work on all experts at once.
func (e *experts) groupedForward(x *Exec, s expertsSaved, made tensor.Mem, rows int) {
	if rows == 0 {
		return
	}
	gateup, active := first(x, s.gateup, rows, 2*e.inside), first(x, s.active, rows, e.inside)
	w, gap := e.weights(x, gateupOf)
	x.Backend.GroupedForward(x.Stream, gateup, first(x, s.inp, rows, e.hidden), w, s.decided.ends, rows, e.hidden, 2*e.inside, e.Count, gap)
	x.Backend.SwiGLUForward(x.Stream, active, gateup, rows, e.inside)
	w, gap = e.weights(x, downOf)
	x.Backend.GroupedForward(x.Stream, first(x, made, rows, e.hidden), active, w, s.decided.ends, rows, e.inside, e.hidden, e.Count, gap)
}

// groupedBackwardInput sets dgateup and dinp from dmade.
func (e *experts) groupedBackwardInput(x *Exec, s expertsSaved, h expertsHeld, dinp tensor.Mem, rows int) {
	if rows == 0 {
		return
	}
	dactive, dgateup := first(x, x.scratch, rows, e.inside), first(x, h.dgateup, rows, 2*e.inside)
	w, gap := e.weights(x, downOf)
	x.Backend.GroupedBackwardInput(x.Stream, dactive, first(x, h.dmade, rows, e.hidden), w, s.decided.ends, rows, e.inside, e.hidden, e.Count, gap)
	x.Backend.SwiGLUBackward(x.Stream, dgateup, dactive, first(x, s.gateup, rows, 2*e.inside), rows, e.inside)
	w, gap = e.weights(x, gateupOf)
	x.Backend.GroupedBackwardInput(x.Stream, first(x, dinp, rows, e.hidden), dgateup, w, s.decided.ends, rows, e.hidden, 2*e.inside, e.Count, gap)
}

// groupedBackwardWeight adds to the gradients of all experts' matrices.
func (e *experts) groupedBackwardWeight(x *Exec, s expertsSaved, h expertsHeld, rows int) {
	if rows == 0 || e.list[0].down.w.Frozen {
		return
	}
	dw, gap := e.gradients(x, downOf)
	x.Backend.GroupedBackwardWeight(x.Stream, dw, first(x, h.dmade, rows, e.hidden), first(x, s.active, rows, e.inside), s.decided.ends, rows, e.inside, e.hidden, e.Count, gap)
	dw, gap = e.gradients(x, gateupOf)
	x.Backend.GroupedBackwardWeight(x.Stream, dw, first(x, h.dgateup, rows, 2*e.inside), first(x, s.inp, rows, e.hidden), s.decided.ends, rows, e.hidden, 2*e.inside, e.Count, gap)
}
