package model

import "dynmo/src/tensor"

// head is the end of the chain, or one slice of it: final norm, projection to the vocabulary (with
// the embedding's weights if they are tied) and the mean cross-entropy,
//
//	loss = mean_n -log softmax(norm(inp)·Wᵀ)[target]
//
// The head may be cut into slices of the vocabulary. Each slice is a layer with some rows of W, and
// the first slice computes the norm. Forward, each slice passes on norm(inp) and the softmax's
// statistics so far: the largest logit and the sum of exponentials, which merge (Milakov &
// Gimelshein 2018). So the last slice knows the loss. Backward, each slice passes on the final
// statistics and the gradient of norm(inp), to which it adds its own share. Logits become their
// gradient in place: forward in the last slice, backward in the others.
type head struct {
	Basic
	hidden      int
	first, last bool // whether this is the first slice, the last; both if there is one
	lo, rows    int  // of the vocabulary
	norm        Norm // of the first slice
	token       *Param
	weight      float64 // of the loss's gradient
	teaches     bool    // layers learn from it; there is one slice then
}

// Slices returns the number of layers that the head is cut into, at least 1.
func (c Config) Slices() int { return max(1, c.HeadShards) }

// Slice returns entries [lo, hi) of the vocabulary, which slice k of the head computes.
func (c Config) Slice(k int) (lo, hi int) {
	return k * c.Vocab / c.Slices(), (k + 1) * c.Vocab / c.Slices()
}

func newHead(c Config, k int) *head {
	lo, hi := c.Slice(k)
	h := &head{hidden: c.Hidden, first: k == 0, last: k == c.Slices()-1, lo: lo, rows: hi - lo, weight: 1, teaches: c.Learns()}
	for _, e := range c.Kinds.list() {
		h.weight *= e.HeadWeight(c)
	}
	at := Place{"head", -1}
	if h.first {
		h.norm = c.NewNorm(at, "norm")
	}
	h.token = at.Param("head.weight", hi-lo, c.Hidden, RoleDecayed, InitDeviation)
	h.token.First, h.token.Of = lo, c.Vocab
	if c.Tied {
		h.token.Name, h.token.Weight, h.token.File, h.token.role = TokenTable, TokenWeight, TokenWeight, RoleBorrowed
	}
	return h
}

func (h *head) Params() []*Param {
	if h.first {
		return append(h.norm.Params(), h.token)
	}
	return []*Param{h.token}
}

// Leaves is nothing in the last slice: the loss leaves as a reading.
func (h *head) Leaves() Width {
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
	c := Cutter{Mem: m, Tokens: tokens, Capacity: tokens}
	return crossing{normed: c.Rows(h.hidden, x.Backend.DType()), softmax: c.Rows(3, tensor.F64)}
}

// headSaved has normed and softmax together, as they leave the slice.
type headSaved struct {
	mean, rstd, logits, targets, loss, out, likeliest tensor.Mem
	crossing
}

func (h *head) saved(x *Exec, c *Cutter) headSaved {
	d := x.Backend.DType()
	s := headSaved{logits: c.Rows(h.rows, d), targets: c.Rows(1, tensor.I32)}
	if h.first {
		s.mean, s.rstd = h.norm.Statistics(x, c)
	}
	if h.last {
		s.loss = c.Take(1, tensor.F64)
	}
	s.out = c.Boundary(x, Width{Values: h.hidden, Statistics: 3})
	s.crossing = h.crossing(x, c.Tokens, s.out)
	if h.teaches {
		s.likeliest = c.Rows(1, tensor.I32)
	}
	return s
}

// Memory returns nothing that is passed on in the last slice.
func (h *head) Memory(x *Exec, b *Batch, saved, held tensor.Mem) (out tensor.Mem, savedBytes, heldBytes int64) {
	cs, ch := x.Cut(b, saved), x.Cut(b, held)
	if s := h.saved(x, cs); !h.last {
		out = s.out
	}
	if h.first {
		h.held(x, ch)
	}
	return out, cs.Off, ch.Off
}

// held is the gradient of normed, in the first slice.
func (h *head) held(x *Exec, c *Cutter) tensor.Mem { return c.Rows(h.hidden, x.Backend.DType()) }

func (h *head) Traits() Traits { return Traits{Feeds: true} }

func (h *head) Feed(x *Exec, b *Batch, saved tensor.Mem, _, targets []int32) {
	x.Stream.Copy(h.saved(x, x.Cut(b, saved)).targets, tensor.From(b.Pick(targets)))
}

func (h *head) Readings() []Reading {
	if h.last {
		return []Reading{{Name: Loss, Values: 1}}
	}
	return nil
}

func (h *head) Reading(x *Exec, b *Batch, saved tensor.Mem, _ int) tensor.Mem {
	return h.saved(x, x.Cut(b, saved)).loss
}

// Likeliest returns what Forward left.
func (h *head) Likeliest(x *Exec, b *Batch, saved tensor.Mem) tensor.Mem {
	return h.saved(x, x.Cut(b, saved)).likeliest
}

// Logits returns the logits that Forward left for a token of a text.
func (h *head) Logits(x *Exec, b *Batch, saved tensor.Mem) tensor.Mem {
	return h.saved(x, x.Cut(b, saved)).logits
}

func (h *head) Forward(x *Exec, b *Batch, saved, inp tensor.Mem) error {
	s, n := h.saved(x, x.Cut(b, saved)), b.Tokens
	var before crossing
	if h.first {
		h.norm.Forward(x, n, s.normed, s.mean, s.rstd, inp)
	} else {
		before = h.crossing(x, n, inp)
		x.Stream.Copy(s.normed, before.normed)
	}
	x.Backend.MatmulForward(x.Stream, s.logits, s.normed, h.token.W, tensor.Mem{}, n, h.hidden, h.rows)
	if x.Text != nil {
		return nil
	}
	if h.teaches && !x.Validates {
		x.Backend.Likeliest(x.Stream, s.likeliest, s.logits, n, h.rows)
	}
	if h.last {
		x.Backend.CrossEntropy(x.Stream, s.loss, s.softmax, before.softmax, s.logits, s.targets, h.weight*x.Scale, n, h.rows, h.lo)
	} else {
		x.Backend.SoftmaxMerge(x.Stream, s.softmax, before.softmax, s.logits, s.targets, n, h.rows, h.lo)
	}
	return nil
}

// BackwardInput leaves the gradient of normed in held if this is the first slice.
func (h *head) BackwardInput(x *Exec, b *Batch, saved, held, inp, dout, din tensor.Mem) error {
	s, n := h.saved(x, x.Cut(b, saved)), b.Tokens
	behind := crossing{softmax: s.softmax}
	if !h.last {
		behind = h.crossing(x, n, dout)
		x.Backend.SoftmaxGradient(x.Stream, s.logits, behind.softmax, s.targets, h.weight*x.Scale, n, h.rows, h.lo)
	}
	dnormed := tensor.Mem{}
	switch {
	case h.first:
		dnormed = h.held(x, x.Cut(b, held))
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
		h.norm.BackwardInput(x, n, din, dnormed, inp, s.mean, s.rstd)
	}
	return nil
}

func (h *head) BackwardWeight(x *Exec, b *Batch, saved, held, inp, _ tensor.Mem) error {
	s, n := h.saved(x, x.Cut(b, saved)), b.Tokens
	if !h.token.Frozen {
		x.Backend.MatmulBackwardWeight(x.Stream, h.token.G, tensor.Mem{}, s.logits, s.normed, n, h.hidden, h.rows)
	}
	if h.first {
		h.norm.BackwardWeight(x, n, h.held(x, x.Cut(b, held)), inp, s.mean, s.rstd)
	}
	return nil
}
