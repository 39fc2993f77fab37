package model

import (
	"math"

	"dynmo/src/tensor"
)

// initDeviation is the deviation of GPT-2's initial weights (Radford et al. 2019).
const initDeviation = 0.02

// deviation returns the deviation of a block's initial weights.
func (c Config) deviation(block int) float64 {
	if c.DepthScaled {
		return initDeviation / math.Sqrt(float64(block+1))
	}
	return initDeviation
}

// embedding is the first layer: out = token[id] + position[t].
type embedding struct {
	hidden, vocab int
	token         *Param // (V, C)
	position      *Param // (sequence, C)
}

// tokenTable is the name of the embedding matrix. The head's tied copy has the
// same name, so that both are drawn from the same random numbers.
const tokenTable = "token.weight"

func newEmbedding(c Config) *embedding {
	return &embedding{
		hidden: c.Hidden, vocab: c.Vocab,
		token:    &Param{Name: tokenTable, Rows: c.Vocab, Cols: c.Hidden, role: decayed, deviation: initDeviation, block: -1},
		position: &Param{Name: "position.weight", Rows: c.Sequence, Cols: c.Hidden, role: decayed, deviation: initDeviation, block: -1},
	}
}

func (e *embedding) params() []*Param { return []*Param{e.token, e.position} }

type embeddingSaved struct{ tokens, out tensor.Mem }

func (e *embedding) saved(x *Exec, c *cutter) embeddingSaved {
	return embeddingSaved{tokens: c.take(x.N(), tensor.I32), out: c.take(x.N()*e.hidden, x.Backend.DType())}
}

func (e *embedding) sizes(x *Exec) (int64, int64) {
	var saved cutter
	e.saved(x, &saved)
	return saved.off, 0
}

func (e *embedding) output(x *Exec, saved tensor.Mem) tensor.Mem {
	return e.saved(x, &cutter{m: saved}).out
}

func (e *embedding) forward(x *Exec, saved, _ tensor.Mem) {
	s := e.saved(x, &cutter{m: saved})
	x.Backend.EmbeddingForward(x.Stream, s.out, s.tokens, x.positions, e.token.W, e.position.W, x.N(), e.hidden)
}

// backwardInput does nothing: tokens have no gradient.
func (e *embedding) backwardInput(*Exec, tensor.Mem, tensor.Mem, tensor.Mem, tensor.Mem, tensor.Mem) {
}

func (e *embedding) backwardWeight(x *Exec, saved, _, _, dout tensor.Mem) {
	s := e.saved(x, &cutter{m: saved})
	x.Backend.EmbeddingBackward(x.Stream, e.token.G, e.position.G, dout, s.tokens, x.positions, x.N(), e.hidden)
}
