package moe

import (
	"dynmo/src/model"
	"dynmo/src/tensor"
	"unsafe"
)

// The device decides where tokens go, and computes the products of all experts of this rank in one
// call. The host knows the largest possible number of rows. At the end of the step it reads the
// number of rows of each expert, with the other readings. Memory behind the actual rows holds
// anything, and nothing reads it.
//
// The host waits for the rows of each expert in two cases only: it needs the lengths of messages
// between spread experts, or it computes the products one expert after the other.

// assigned returns how many assignments have a place, of n tokens: where the host does not
// know, how many at most.
func (e *experts) assigned(d *dispatch, n int) int {
	if e.Spread > 0 {
		return int(d.ends[len(d.ends)-1])
	}
	return e.assignable(n)
}

// dispatch sorts the assignments, and waits for the rows of each expert where passes need them:
// once for a microbatch.
func (e *experts) dispatch(x *model.Exec, b *model.Batch, s expertsSaved) error {
	d := b.Work.(*dispatch)
	e.placeTokens(x, b.Queries, s)
	if e.grouped() || x.Repeats {
		return nil
	}
	ends := e.rankMemory(x).rows.Span(0, s.decided.ends.Bytes)
	x.Stream.Copy(ends, s.decided.ends)
	if err := x.Stream.Sync(); err != nil {
		return err
	}
	copy(d.ends, tensor.Of[int32](ends))
	if e.Spread > 0 {
		return e.exchangeCounts(x, d)
	}
	d.blocks = d.blocks[:0]
	for k := range e.list {
		if rows := d.rowsOf(k); rows.hi > rows.lo {
			d.blocks = append(d.blocks, block{k, rows})
		}
	}
	return nil
}

// grouped reports whether one call makes the products of all experts: they are here, their
// matrices dense and without biases, and all of them frozen or none.
func (e *experts) grouped() bool {
	if e.Spread > 0 {
		return false
	}
	frozen := e.list[0].down.W.Frozen
	for _, m := range e.list {
		for _, l := range []model.Linear{m.gateup, m.down} {
			if l.W.Format.Sparse() || l.B != nil || l.W.Frozen != frozen {
				return false
			}
		}
	}
	return true
}

// matrices returns one matrix of every expert, from the first to the last, and how many
// elements lie between two.
func (e *experts) matrices(x *model.Exec, element int64, of func(m mlpOf) tensor.Mem) (all tensor.Mem, gap int) {
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
func (e *experts) weights(x *model.Exec, of func(m mlpOf) model.Linear) (tensor.Mem, int) {
	return e.matrices(x, x.Backend.DType().Size(), func(m mlpOf) tensor.Mem { return of(m).W.W })
}

func (e *experts) gradients(x *model.Exec, of func(m mlpOf) model.Linear) (tensor.Mem, int) {
	return e.matrices(x, x.Backend.DType().Wide().Size(), func(m mlpOf) tensor.Mem { return of(m).W.G })
}

func gateupOf(m mlpOf) model.Linear { return m.gateup }
func downOf(m mlpOf) model.Linear   { return m.down }

// groupedForward is work on all experts at once.
func (e *experts) groupedForward(x *model.Exec, s expertsSaved, computed tensor.Mem, rows int) {
	if rows == 0 {
		return
	}
	gateup, active := firstRows(x, s.gateup, rows, 2*e.inside), firstRows(x, s.active, rows, e.inside)
	w, gap := e.weights(x, gateupOf)
	x.Backend.GroupedForward(x.Stream, gateup, firstRows(x, s.inp, rows, e.hidden), w, s.decided.ends, rows, e.hidden, 2*e.inside, len(e.list), gap)
	x.Backend.SwiGLUForward(x.Stream, active, gateup, rows, e.inside)
	w, gap = e.weights(x, downOf)
	x.Backend.GroupedForward(x.Stream, firstRows(x, computed, rows, e.hidden), active, w, s.decided.ends, rows, e.inside, e.hidden, len(e.list), gap)
}

// groupedBackwardInput sets dgateup and dinp from dmade.
func (e *experts) groupedBackwardInput(x *model.Exec, s expertsSaved, h expertsHeld, dinp tensor.Mem, rows int) {
	if rows == 0 {
		return
	}
	dactive, dgateup := firstRows(x, x.Scratch, rows, e.inside), firstRows(x, h.dgateup, rows, 2*e.inside)
	w, gap := e.weights(x, downOf)
	x.Backend.GroupedBackwardInput(x.Stream, dactive, firstRows(x, h.doutputs, rows, e.hidden), w, s.decided.ends, rows, e.inside, e.hidden, len(e.list), gap)
	x.Backend.SwiGLUBackward(x.Stream, dgateup, dactive, firstRows(x, s.gateup, rows, 2*e.inside), rows, e.inside)
	w, gap = e.weights(x, gateupOf)
	x.Backend.GroupedBackwardInput(x.Stream, firstRows(x, dinp, rows, e.hidden), dgateup, w, s.decided.ends, rows, e.hidden, 2*e.inside, len(e.list), gap)
}

// groupedBackwardWeight adds to the gradients of all experts' matrices.
func (e *experts) groupedBackwardWeight(x *model.Exec, s expertsSaved, h expertsHeld, rows int) {
	if rows == 0 || e.list[0].down.W.Frozen {
		return
	}
	dw, gap := e.gradients(x, downOf)
	x.Backend.GroupedBackwardWeight(x.Stream, dw, firstRows(x, h.doutputs, rows, e.hidden), firstRows(x, s.active, rows, e.inside), s.decided.ends, rows, e.inside, e.hidden, len(e.list), gap)
	dw, gap = e.gradients(x, gateupOf)
	x.Backend.GroupedBackwardWeight(x.Stream, dw, firstRows(x, h.dgateup, rows, 2*e.inside), firstRows(x, s.inp, rows, e.hidden), s.decided.ends, rows, e.hidden, 2*e.inside, len(e.list), gap)
}
