package model

import "dynmo/src/tensor"

// head is the end of the chain, or one slice of it: final norm, projection to the vocabulary (with
// the embedding's weights if they are tied) and the mean cross-entropy,
//
//	loss = mean_n -log softmax(norm(inp)·Wᵀ)[target]
//
// The head may be cut into slices of the vocabulary. Each slice is a layer with some rows of W, and
// the first slice computes the norm. Forward, each slice passes on norm(inp) and the statistics of
// the softmax so far (see kernel.SoftmaxMerge). Statistics of slices merge (Milakov & Gimelshein
// 2018), so the last slice knows the loss. Backward, each slice passes on the final statistics and
// the gradient of norm(inp), to which it adds its own share. Logits become their gradient in place:
// in the last slice during Forward, in the other slices during BackwardInput.
type head struct {
	Basic
	hidden      int
	first, last bool    // whether this is the first slice, the last; both if there is one
	lo, rows    int     // the slice has rows [lo, lo+rows) of the vocabulary
	norm        Norm    // in the first slice
	token       *Param  // (rows, C): the slice's rows of W
	weight      float64 // factor of the loss's gradient
	teaches     bool    // other layers learn from its logits (see Learner). The head then has one slice.
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

// Leaves returns no width for the last slice: its loss is a reading (see Readings).
func (h *head) Leaves() Width {
	if h.last {
		return Width{}
	}
	return Width{Values: h.hidden, Statistics: 3}
}

// sliceBoundary is what one slice passes to its neighbour, in this order. Forward, normed is norm(inp)
// (n, C), and softmax has the statistics so far, F64 (3, n). Backward, normed is the gradient of
// norm(inp), and softmax has the final statistics.
type sliceBoundary struct{ normed, softmax tensor.Mem }

// boundary returns the two fields inside m, for a number of tokens.
func (h *head) boundary(x *Exec, tokens int, m tensor.Mem) sliceBoundary {
	c := Cutter{Mem: m, Tokens: tokens, Capacity: tokens}
	return sliceBoundary{normed: c.Rows(h.hidden, x.Backend.DType()), softmax: c.Rows(3, tensor.F64)}
}

// headSaved is the saved memory of a slice. normed and softmax lie together in out, the slice's output.
type headSaved struct {
	mean, rstd, logits, targets, loss, out, likeliest tensor.Mem
	sliceBoundary
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
	s.sliceBoundary = h.boundary(x, c.Tokens, s.out)
	if h.teaches {
		s.likeliest = c.Rows(1, tensor.I32)
	}
	return s
}

// Memory returns an absent out for the last slice, which has no output.
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

// held returns the place of the gradient of norm(inp) inside held memory, in the first slice.
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

// Likeliest returns the column of each token's largest logit, as Forward left it.
func (h *head) Likeliest(x *Exec, b *Batch, saved tensor.Mem) tensor.Mem {
	return h.saved(x, x.Cut(b, saved)).likeliest
}

// Logits returns the logits that Forward left for a token of a text.
func (h *head) Logits(x *Exec, b *Batch, saved tensor.Mem) tensor.Mem {
	return h.saved(x, x.Cut(b, saved)).logits
}

func (h *head) Forward(x *Exec, b *Batch, saved, inp tensor.Mem) error {
	s, n := h.saved(x, x.Cut(b, saved)), b.Tokens
	var before sliceBoundary
	if h.first {
		h.norm.Forward(x, n, s.normed, s.mean, s.rstd, inp)
	} else {
		before = h.boundary(x, n, inp)
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

// BackwardInput sets din to the gradient of inp in the first slice, and to the sliceBoundary of the
// slice before in other slices. The first slice leaves the gradient of norm(inp) in held.
func (h *head) BackwardInput(x *Exec, b *Batch, saved, held, inp, dout, din tensor.Mem) error {
	s, n := h.saved(x, x.Cut(b, saved)), b.Tokens
	after := sliceBoundary{softmax: s.softmax}
	if !h.last {
		after = h.boundary(x, n, dout)
		x.Backend.SoftmaxGradient(x.Stream, s.logits, after.softmax, s.targets, h.weight*x.Scale, n, h.rows, h.lo)
	}
	dnormed := tensor.Mem{}
	switch {
	case h.first:
		dnormed = h.held(x, x.Cut(b, held))
	case din.IsZero():
		return nil
	default:
		before := h.boundary(x, n, din)
		x.Stream.Copy(before.softmax, after.softmax)
		dnormed = before.normed
	}
	x.Backend.MatmulBackwardInput(x.Stream, dnormed, s.logits, h.token.W, n, h.hidden, h.rows)
	if !h.last {
		x.Backend.Add(x.Stream, dnormed, dnormed, after.normed, n*h.hidden)
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
