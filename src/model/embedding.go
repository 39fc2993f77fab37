package model

import "dynmo/src/tensor"

// embedding is out = token[id] + position[t], or token[id] where positions are rotary.
type embedding struct {
	Basic
	hidden          int
	token, position *Param // (V, C), (sequence, C); position may be nil
}

// TokenTable is Param.Name of the embedding matrix, and TokenWeight its Param.Weight. A head that is
// tied to the embedding has a copy of the same name: names seed the initial weights, so both begin
// with the same values.
const (
	TokenTable  = "token.weight"
	TokenWeight = "embedding/" + TokenTable
)

func newEmbedding(c Config) *embedding {
	at := Place{"embedding", -1}
	e := &embedding{hidden: c.Hidden, token: at.Param(TokenTable, c.Vocab, c.Hidden, RoleDecayed, InitDeviation)}
	if !c.Rope.Turns() {
		e.position = at.Param("position.weight", c.Sequence, c.Hidden, RoleDecayed, InitDeviation)
	}
	return e
}

func (e *embedding) Params() []*Param { return present(e.token, e.position) }
func (e *embedding) Leaves() Width    { return Width{Values: e.hidden} }

type embeddingSaved struct{ tokens, out tensor.Mem }

func (e *embedding) saved(x *Exec, c *Cutter) embeddingSaved {
	return embeddingSaved{tokens: c.Rows(1, tensor.I32), out: c.Rows(e.hidden, x.Backend.DType())}
}

func (e *embedding) Memory(x *Exec, b *Batch, saved, _ tensor.Mem) (tensor.Mem, int64, int64) {
	c := x.Cut(b, saved)
	return e.saved(x, c).out, c.Off, 0
}

func (e *embedding) Traits() Traits { return Traits{Feeds: true} }

func (e *embedding) Feed(x *Exec, b *Batch, saved tensor.Mem, tokens, _ []int32) {
	x.Stream.Copy(e.saved(x, x.Cut(b, saved)).tokens, tensor.From(b.Pick(tokens)))
}

func (e *embedding) Forward(x *Exec, b *Batch, saved, _ tensor.Mem) error {
	s := e.saved(x, x.Cut(b, saved))
	if e.position == nil {
		x.Backend.GatherRows(x.Stream, s.out, e.token.W, s.tokens, tensor.Mem{}, b.Tokens, e.hidden)
		return nil
	}
	x.Backend.EmbeddingForward(x.Stream, s.out, s.tokens, b.Positions, e.token.W, e.position.W, b.Tokens, e.hidden)
	return nil
}

// BackwardInput does nothing: tokens have no gradient.
func (e *embedding) BackwardInput(*Exec, *Batch, tensor.Mem, tensor.Mem, tensor.Mem, tensor.Mem, tensor.Mem) error {
	return nil
}

func (e *embedding) BackwardWeight(x *Exec, b *Batch, saved, _, _, dout tensor.Mem) error {
	if e.token.Frozen {
		return nil
	}
	s := e.saved(x, x.Cut(b, saved))
	var dposition tensor.Mem
	if e.position != nil {
		dposition = e.position.G
	}
	x.Backend.EmbeddingBackward(x.Stream, e.token.G, dposition, dout, s.tokens, b.Positions, b.Tokens, e.hidden)
	return nil
}
