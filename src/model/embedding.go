package model

import "dynmo/src/tensor"

// embedding is out = token[id] + position[t], or token[id] where positions are rotary.
type embedding struct {
	basic
	hidden          int
	token, position *Param // (V, C), (sequence, C); position may be nil
}

// tokenTable is the name of the embedding matrix. A head's tied copy has the same
// name, so that both are drawn from the same random numbers.
const (
	tokenTable  = "token.weight"
	tokenWeight = "embedding/" + tokenTable
)

func newEmbedding(c Config) *embedding {
	at := place{"embedding", -1}
	e := &embedding{hidden: c.Hidden, token: at.param(tokenTable, c.Vocab, c.Hidden, decayed, initDeviation)}
	if !c.Rope.Turns() {
		e.position = at.param("position.weight", c.Sequence, c.Hidden, decayed, initDeviation)
	}
	return e
}

func (e *embedding) params() []*Param { return present(e.token, e.position) }
func (e *embedding) leaves() Width    { return Width{Values: e.hidden} }

type embeddingSaved struct{ tokens, out tensor.Mem }

func (e *embedding) saved(x *Exec, c *cutter) embeddingSaved {
	return embeddingSaved{tokens: c.rows(1, tensor.I32), out: c.rows(e.hidden, x.Backend.DType())}
}

func (e *embedding) memory(x *Exec, b *Batch, saved, _ tensor.Mem) (tensor.Mem, int64, int64) {
	c := x.cut(b, saved)
	return e.saved(x, c).out, c.off, 0
}

func (e *embedding) traits() Traits { return Traits{Feeds: true} }

func (e *embedding) feed(x *Exec, b *Batch, saved tensor.Mem, tokens, _ []int32) {
	x.Stream.Copy(e.saved(x, x.cut(b, saved)).tokens, tensor.From(b.pick(tokens)))
}

func (e *embedding) forward(x *Exec, b *Batch, saved, _ tensor.Mem) error {
	s := e.saved(x, x.cut(b, saved))
	if e.position == nil {
		x.Backend.GatherRows(x.Stream, s.out, e.token.W, s.tokens, tensor.Mem{}, b.Tokens, e.hidden)
		return nil
	}
	x.Backend.EmbeddingForward(x.Stream, s.out, s.tokens, b.Positions, e.token.W, e.position.W, b.Tokens, e.hidden)
	return nil
}

// backwardInput does nothing: tokens have no gradient.
func (e *embedding) backwardInput(*Exec, *Batch, tensor.Mem, tensor.Mem, tensor.Mem, tensor.Mem, tensor.Mem) error {
	return nil
}

func (e *embedding) backwardWeight(x *Exec, b *Batch, saved, _, _, dout tensor.Mem) error {
	if e.token.Frozen {
		return nil
	}
	s := e.saved(x, x.cut(b, saved))
	var dposition tensor.Mem
	if e.position != nil {
		dposition = e.position.G
	}
	x.Backend.EmbeddingBackward(x.Stream, e.token.G, dposition, dout, s.tokens, b.Positions, b.Tokens, e.hidden)
	return nil
}
