package model

import "dynmo/src/tensor"

// head is the last layer: final norm, projection to the vocabulary (with the
// embedding's weights if they are tied) and the mean cross-entropy.
//
//	loss = mean_n -log softmax(norm(inp)·Wᵀ)[target]
type head struct {
	hidden, vocab int
	norm          norm
	token         *Param // (V, C)
}

func newHead(c Config) *head {
	h := &head{
		hidden: c.Hidden, vocab: c.Vocab,
		norm:  newNorm("norm", c.Hidden, -1),
		token: &Param{Name: "head.weight", Rows: c.Vocab, Cols: c.Hidden, role: decayed, deviation: initDeviation, block: -1},
	}
	if c.Tied {
		h.token.Name, h.token.role = tokenTable, borrowed
	}
	return h
}

func (h *head) params() []*Param { return []*Param{h.norm.w, h.norm.b, h.token} }

type headSaved struct{ mean, rstd, normed, logits, targets, loss tensor.Mem }

func (h *head) saved(x *Exec, c *cutter) headSaved {
	d, n := x.Backend.DType(), x.N()
	return headSaved{
		mean: c.take(n, d), rstd: c.take(n, d), normed: c.take(n*h.hidden, d),
		logits: c.take(n*h.vocab, d), targets: c.take(n, tensor.I32), loss: c.take(1, tensor.F64),
	}
}

func (h *head) sizes(x *Exec) (int64, int64) {
	var saved cutter
	h.saved(x, &saved)
	return saved.off, int64(x.N()*h.hidden) * x.Backend.DType().Size()
}

// output is absent: the loss leaves by Layer.Loss.
func (h *head) output(*Exec, tensor.Mem) tensor.Mem { return tensor.Mem{} }

// forward leaves the gradient of the logits in their place, and the sum of the
// tokens' losses.
func (h *head) forward(x *Exec, saved, inp tensor.Mem) {
	s := h.saved(x, &cutter{m: saved})
	h.norm.forward(x, s.normed, s.mean, s.rstd, inp)
	x.Backend.MatmulForward(x.Stream, s.logits, s.normed, h.token.W, tensor.Mem{}, x.N(), h.hidden, h.vocab)
	x.Backend.CrossEntropy(x.Stream, s.loss, s.logits, s.targets, x.Scale, x.N(), h.vocab)
}

func (h *head) backwardInput(x *Exec, saved, dnormed, inp, _, din tensor.Mem) {
	s := h.saved(x, &cutter{m: saved})
	x.Backend.MatmulBackwardInput(x.Stream, dnormed, s.logits, h.token.W, x.N(), h.hidden, h.vocab)
	x.Stream.Zero(din)
	h.norm.backwardInput(x, din, dnormed, inp, s.mean, s.rstd)
}

func (h *head) backwardWeight(x *Exec, saved, dnormed, inp, _ tensor.Mem) {
	s := h.saved(x, &cutter{m: saved})
	x.Backend.MatmulBackwardWeight(x.Stream, h.token.G, tensor.Mem{}, s.logits, s.normed, x.N(), h.hidden, h.vocab)
	h.norm.backwardWeight(x, dnormed, inp, s.mean, s.rstd)
}
