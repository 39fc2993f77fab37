package model

import (
	"fmt"

	"dynmo/src/tensor"
)

// head is the end of the chain, or one slice of it: final norm, projection to
// the vocabulary (with the embedding's weights if they are tied) and the mean
// cross-entropy,
//
//	loss = mean_n -log softmax(norm(inp)·Wᵀ)[target]
//
// The head may be cut into slices of the vocabulary, each a layer with some
// rows of W. The first takes the norm. Forward, each passes on normed and what
// is known of the softmax so far (Milakov & Gimelshein 2018: the largest logit
// and the sum of exponentials, which merge), so that the last knows the loss.
// Backward, each passes on the final softmax and the gradient of normed, to
// which it adds its own. Logits become their gradient in place: forward in the
// last slice, backward in the others.
type head struct {
	hidden      int
	first, last bool // whether this is the first slice, the last; both if there is one
	lo, rows    int  // of the vocabulary
	norm        norm // of the first slice
	token       *Param
}

// Slice returns the rows [lo, hi) of the vocabulary that slice k of the head has.
func (c Config) Slice(k int) (lo, hi int) {
	return k * c.Vocab / c.Slices(), (k + 1) * c.Vocab / c.Slices()
}

func newHead(c Config, k int) *head {
	lo, hi := c.Slice(k)
	h := &head{hidden: c.Hidden, first: k == 0, last: k == c.Slices()-1, lo: lo, rows: hi - lo}
	if h.first {
		h.norm = newNorm("norm", c.Hidden, -1)
	}
	h.token = &Param{
		Name: "head.weight", Rows: hi - lo, Cols: c.Hidden, First: lo, Of: c.Vocab, role: decayed,
		deviation: initDeviation, block: -1,
	}
	if c.Tied {
		h.token.Name, h.token.role = tokenTable, borrowed
	}
	return h
}

// headName returns the name of slice k of the head.
func (c Config) headName(k int) string {
	if c.Slices() == 1 {
		return "head"
	}
	return fmt.Sprintf("head.%d", k)
}

func (h *head) params() []*Param {
	if h.first {
		return []*Param{h.norm.w, h.norm.b, h.token}
	}
	return []*Param{h.token}
}

// crossing is what passes between two slices: forward normed (n, C) and the
// softmax so far (3, n), backward the gradient of normed and the final softmax.
type crossing struct{ normed, softmax tensor.Mem }

func (x *Exec) crossing(hidden int, c *cutter) crossing {
	return crossing{normed: c.take(x.N()*hidden, x.Backend.DType()), softmax: c.take(3*x.N(), tensor.F64)}
}

// headSaved has normed and softmax together, as they leave the slice.
type headSaved struct {
	mean, rstd, logits, targets, loss, out tensor.Mem
	crossing
}

func (h *head) saved(x *Exec, c *cutter) headSaved {
	d, n := x.Backend.DType(), x.N()
	s := headSaved{logits: c.take(n*h.rows, d), targets: c.take(n, tensor.I32)}
	if h.first {
		s.mean, s.rstd = c.take(n, d.Wide()), c.take(n, d.Wide())
	}
	if h.last {
		s.loss = c.take(1, tensor.F64)
	}
	var leaving cutter
	x.crossing(h.hidden, &leaving)
	s.out = c.bytes(leaving.off)
	s.crossing = x.crossing(h.hidden, &cutter{m: s.out})
	return s
}

func (h *head) sizes(x *Exec) (saved, held int64) {
	var cut cutter
	h.saved(x, &cut)
	if h.first {
		held = int64(x.N()*h.hidden) * x.Backend.DType().Size()
	}
	return cut.off, held
}

// output is absent in the last slice: the loss leaves by Layer.Loss.
func (h *head) output(x *Exec, saved tensor.Mem) tensor.Mem {
	if h.last {
		return tensor.Mem{}
	}
	return h.saved(x, &cutter{m: saved}).out
}

func (h *head) forward(x *Exec, saved, inp tensor.Mem) {
	s, n := h.saved(x, &cutter{m: saved}), x.N()
	var before crossing
	if h.first {
		h.norm.forward(x, s.normed, s.mean, s.rstd, inp)
	} else {
		before = x.crossing(h.hidden, &cutter{m: inp})
		x.Stream.Copy(s.normed, before.normed)
	}
	x.Backend.MatmulForward(x.Stream, s.logits, s.normed, h.token.W, tensor.Mem{}, n, h.hidden, h.rows)
	if h.last {
		x.Backend.CrossEntropy(x.Stream, s.loss, s.softmax, before.softmax, s.logits, s.targets, x.Scale, n, h.rows, h.lo)
	} else {
		x.Backend.SoftmaxMerge(x.Stream, s.softmax, before.softmax, s.logits, s.targets, n, h.rows, h.lo)
	}
}

// backwardInput leaves the gradient of normed in held if this is the first slice.
func (h *head) backwardInput(x *Exec, saved, held, inp, dout, din tensor.Mem) {
	s, n := h.saved(x, &cutter{m: saved}), x.N()
	behind := crossing{softmax: s.softmax}
	if !h.last {
		behind = x.crossing(h.hidden, &cutter{m: dout})
		x.Backend.SoftmaxGradient(x.Stream, s.logits, behind.softmax, s.targets, x.Scale, n, h.rows, h.lo)
	}
	dnormed := held
	if !h.first {
		before := x.crossing(h.hidden, &cutter{m: din})
		x.Stream.Copy(before.softmax, behind.softmax)
		dnormed = before.normed
	}
	x.Backend.MatmulBackwardInput(x.Stream, dnormed, s.logits, h.token.W, n, h.hidden, h.rows)
	if !h.last {
		x.Backend.Add(x.Stream, dnormed, dnormed, behind.normed, n*h.hidden)
	}
	if h.first {
		x.Stream.Zero(din)
		h.norm.backwardInput(x, din, dnormed, inp, s.mean, s.rstd)
	}
}

func (h *head) backwardWeight(x *Exec, saved, dnormed, inp, _ tensor.Mem) {
	s := h.saved(x, &cutter{m: saved})
	x.Backend.MatmulBackwardWeight(x.Stream, h.token.G, tensor.Mem{}, s.logits, s.normed, x.N(), h.hidden, h.rows)
	if h.first {
		h.norm.backwardWeight(x, dnormed, inp, s.mean, s.rstd)
	}
}
