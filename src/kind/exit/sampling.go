package exit

import (
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// Texts returns the exits of a model that continues a text: states of tokens that left go on, and no
// token but those that leave has logits.
func (e Exits) Texts() model.Extension {
	e.Propagate, e.Weighted, e.Agree, e.Weight = true, false, false, 0
	return e
}

// Logits returns the logits of a token of a text that left here. The exit computes them if the
// microbatch is one token.
func (e *exit) Logits(x *model.Exec, b *model.Batch, saved tensor.Mem) tensor.Mem {
	s, _ := e.saved(x, b, saved, 1)
	return s.logits
}

// Notes says how training treated tokens that left.
func (e Exits) Notes() []string {
	if e.Weighted || e.Propagate {
		return nil
	}
	return []string{"exit.propagate = false: in training tokens that left were no keys in later blocks, here these make keys and values of their states"}
}
