package layerdrop

import (
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// work is the Work of a gated part: the Work of the part within, and the factors of its path.
type work struct {
	x              *model.Exec
	gated          *gated
	within         model.Work // nil if the part has none
	origin, inside *model.Batch
	entered        model.Batch
	memory, host   tensor.Mem // rows, I32 (N); q, 1-q and 1, wide, each (N)
	written        float64    // the share that the factors are of; 0: none
}

// inside returns the batch as the part within sees it.
func inside(b *model.Batch) *model.Batch {
	if w, is := b.Work.(*work); is {
		return w.inside
	}
	return b // of Sizes alone
}

// Enter lets b enter the part within.
func (w *work) Enter(b *model.Batch) *model.Batch {
	w.origin, w.entered, w.inside = b, *b, b
	w.entered.Work = w
	if w.within != nil {
		w.inside = w.within.Enter(b)
	}
	if share := w.gated.share(); share != w.written && share != 1 {
		w.write(share)
	}
	return &w.entered
}

// write copies the factors of a share to the device. The copy of the share before is done:
// shares change between steps.
func (w *work) write(share float64) {
	c := model.Cutter{Mem: w.host}
	rows, factors := w.cut(&c)
	for i := range w.x.N() {
		tensor.Of[int32](rows)[i] = int32(i)
		for k, factor := range []float64{1 / share, 1 - 1/share, 1} {
			if w.x.Backend.DType().Wide() == tensor.F64 {
				tensor.Of[float64](factors[k])[i] = factor
			} else {
				tensor.Of[float32](factors[k])[i] = float32(factor)
			}
		}
	}
	w.x.Stream.Copy(w.memory, w.host)
	w.written = share
}

// cut cuts memory of the rows of a full microbatch, and of q, 1-q and 1 of each.
func (w *work) cut(c *model.Cutter) (rows tensor.Mem, factors [3]tensor.Mem) {
	rows = c.Take(w.x.N(), tensor.I32)
	for k := range factors {
		factors[k] = c.Take(w.x.N(), w.x.Backend.DType().Wide())
	}
	return rows, factors
}

// factors returns, for the first tokens of the batch, their rows, and q, 1-q and 1 of each.
func (w *work) factors(tokens int) (rows, q, rest, one tensor.Mem) {
	rows, all := w.cut(&model.Cutter{Mem: w.memory})
	wide := int64(tokens) * w.x.Backend.DType().Wide().Size()
	return rows.Span(0, int64(tokens)*tensor.I32.Size()), all[0].Span(0, wide), all[1].Span(0, wide), all[2].Span(0, wide)
}

// Skip skips the part within.
func (w *work) Skip() error {
	if w.within != nil {
		return w.within.Skip()
	}
	return nil
}

// Leaves returns the batch that entered.
func (w *work) Leaves() *model.Batch { return w.origin }

// Worked returns no tokens in a step that drops the path.
func (w *work) Worked() int {
	if w.gated.drops(w.x) {
		return 0
	}
	return w.inside.Worked()
}

// Expected returns the share of the steps that keep the path.
func (w *work) Expected() float64 { return w.gated.share() }

// Repeats reports false: steps differ.
func (w *work) Repeats() bool { return false }
