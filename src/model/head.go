package model

import "dynmo/src/tensor"

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
	basic
	hidden      int
	first, last bool // whether this is the first slice, the last; both if there is one
	lo, rows    int  // of the vocabulary
	norm        norm // of the first slice
	token       *Param
}

// Slices returns how many layers the head is.
func (c Config) Slices() int { return max(1, c.HeadShards) }

// Slice returns the rows [lo, hi) of the vocabulary that slice k of the head has.
func (c Config) Slice(k int) (lo, hi int) {
	return k * c.Vocab / c.Slices(), (k + 1) * c.Vocab / c.Slices()
}

func newHead(c Config, k int) *head {
	lo, hi := c.Slice(k)
	h := &head{hidden: c.Hidden, first: k == 0, last: k == c.Slices()-1, lo: lo, rows: hi - lo}
	at := place{"head", -1}
	if h.first {
		h.norm = c.newNorm(at, "norm")
	}
	h.token = at.param("head.weight", hi-lo, c.Hidden, decayed, initDeviation)
	h.token.First, h.token.Of = lo, c.Vocab
	if c.Tied {
		h.token.Name, h.token.Weight, h.token.File, h.token.role = tokenTable, tokenWeight, tokenWeight, borrowed
	}
	return h
}

func (h *head) params() []*Param {
	if h.first {
		return append(h.norm.params(), h.token)
	}
	return []*Param{h.token}
}

// leaves is nothing in the last slice: the loss leaves as a reading.
func (h *head) leaves() Width {
	if h.last {
		return Width{}
	}
	return Width{Values: h.hidden, Statistics: 3}
}

// crossing is what passes between two slices, in this order and for the tokens
// that are there: forward normed (n, C) and the softmax so far (3, n), backward
// the gradient of normed and the final softmax.
type crossing struct{ normed, softmax tensor.Mem }

func (h *head) crossing(x *Exec, tokens int, m tensor.Mem) crossing {
	c := cutter{m: m, tokens: tokens, capacity: tokens}
	return crossing{normed: c.rows(h.hidden, x.Backend.DType()), softmax: c.rows(3, tensor.F64)}
}

// headSaved has normed and softmax together, as they leave the slice.
type headSaved struct {
	mean, rstd, logits, targets, loss, out tensor.Mem
	crossing
}

func (h *head) saved(x *Exec, c *cutter) headSaved {
	d := x.Backend.DType()
	s := headSaved{logits: c.rows(h.rows, d), targets: c.rows(1, tensor.I32)}
	if h.first {
		s.mean, s.rstd = h.norm.statistics(x, c)
	}
	if h.last {
		s.loss = c.take(1, tensor.F64)
	}
	s.out = c.width(x, Width{Values: h.hidden, Statistics: 3})
	s.crossing = h.crossing(x, c.tokens, s.out)
	return s
}

// memory returns nothing that is passed on in the last slice.
func (h *head) memory(x *Exec, b *Batch, saved, held tensor.Mem) (out tensor.Mem, savedBytes, heldBytes int64) {
	cs, ch := x.cut(b, saved), x.cut(b, held)
	if s := h.saved(x, cs); !h.last {
		out = s.out
	}
	if h.first {
		h.held(x, ch)
	}
	return out, cs.off, ch.off
}

// held is the gradient of normed, in the first slice.
func (h *head) held(x *Exec, c *cutter) tensor.Mem { return c.rows(h.hidden, x.Backend.DType()) }

func (h *head) traits() Traits { return Traits{Feeds: true} }

func (h *head) feed(x *Exec, b *Batch, saved tensor.Mem, _, targets []int32) {
	x.Stream.Copy(h.saved(x, x.cut(b, saved)).targets, tensor.From(b.pick(targets)))
}

func (h *head) readings() []Reading {
	if h.last {
		return []Reading{{Name: Loss, Values: 1}}
	}
	return nil
}

func (h *head) reading(x *Exec, b *Batch, saved tensor.Mem, _ int) tensor.Mem {
	return h.saved(x, x.cut(b, saved)).loss
}

func (h *head) forward(x *Exec, b *Batch, saved, inp tensor.Mem) error {
	s, n := h.saved(x, x.cut(b, saved)), b.Tokens
	var before crossing
	if h.first {
		h.norm.forward(x, n, s.normed, s.mean, s.rstd, inp)
	} else {
		before = h.crossing(x, n, inp)
		x.Stream.Copy(s.normed, before.normed)
	}
	x.Backend.MatmulForward(x.Stream, s.logits, s.normed, h.token.W, tensor.Mem{}, n, h.hidden, h.rows)
	if h.last {
		x.Backend.CrossEntropy(x.Stream, s.loss, s.softmax, before.softmax, s.logits, s.targets, x.Scale, n, h.rows, h.lo)
	} else {
		x.Backend.SoftmaxMerge(x.Stream, s.softmax, before.softmax, s.logits, s.targets, n, h.rows, h.lo)
	}
	return nil
}

// backwardInput leaves the gradient of normed in held if this is the first slice.
func (h *head) backwardInput(x *Exec, b *Batch, saved, held, inp, dout, din tensor.Mem) error {
	s, n := h.saved(x, x.cut(b, saved)), b.Tokens
	behind := crossing{softmax: s.softmax}
	if !h.last {
		behind = h.crossing(x, n, dout)
		x.Backend.SoftmaxGradient(x.Stream, s.logits, behind.softmax, s.targets, x.Scale, n, h.rows, h.lo)
	}
	dnormed := tensor.Mem{}
	switch {
	case h.first:
		dnormed = h.held(x, x.cut(b, held))
	case din.IsZero():
		return nil
	default:
		before := h.crossing(x, n, din)
		x.Stream.Copy(before.softmax, behind.softmax)
		dnormed = before.normed
	}
	x.Backend.MatmulBackwardInput(x.Stream, dnormed, s.logits, h.token.W, n, h.hidden, h.rows)
	if !h.last {
		x.Backend.Add(x.Stream, dnormed, dnormed, behind.normed, n*h.hidden)
	}
	if h.first && !din.IsZero() {
		x.Stream.Zero(din)
		h.norm.backwardInput(x, n, din, dnormed, inp, s.mean, s.rstd)
	}
	return nil
}

func (h *head) backwardWeight(x *Exec, b *Batch, saved, held, inp, _ tensor.Mem) error {
	s, n := h.saved(x, x.cut(b, saved)), b.Tokens
	if !h.token.Frozen {
		x.Backend.MatmulBackwardWeight(x.Stream, h.token.G, tensor.Mem{}, s.logits, s.normed, n, h.hidden, h.rows)
	}
	if h.first {
		h.norm.backwardWeight(x, n, h.held(x, x.cut(b, held)), inp, s.mean, s.rstd)
	}
	return nil
}
