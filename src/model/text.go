package model

import (
	"fmt"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Text is one sequence that forwards continue, a few tokens at a time. There is no backward. Every
// forward decides on each token alone, because later tokens are not known.
type Text struct {
	Tokens int // of the text before the microbatch
	Room   int // most tokens of the text
	// Attend adds the keys and values of a batch to those that a block has of earlier tokens. It sets
	// the first Queries rows of attended (tokens, hidden): a token attends to all keys up to its own
	// position. qkv is as in kernel.Backend.AttentionForward.
	Attend func(block int, b *Batch, attended, qkv tensor.Mem)
}

// Continue says how many tokens of the text come before the next microbatch. Only an Exec with a Text
// has it.
func (x *Exec) Continue(tokens int) error {
	x.Text.Tokens = tokens
	positions := make([]int32, x.N())
	for i := range positions {
		positions[i] = int32(tokens + i)
	}
	return device.Write(x.Device, x.Full.Positions, tensor.From(positions))
}

// Texts returns the model as it continues texts: one replica has all of it, its layers are whole, and
// kinds decide on each token alone.
func (c Config) Texts() Config {
	c = c.Whole()
	c.HeadShards, c.HalfGrain, c.Recompute = 0, false, RecomputeNothing
	for _, e := range c.Kinds.list() {
		if of, ok := e.(interface{ Texts() Extension }); ok {
			c = c.With(of.Texts())
		}
	}
	return c
}

// ForwardStage returns all layers of a model for forwards alone. Their weights are zero. They have no
// gradients, masters and moments.
func ForwardStage(c Config, d device.Device, t tensor.DType) (*Stage, error) {
	return newStage(c, c.All(), func(id int) (l *Layer, err error) {
		l = outline(c, c.Chain()[id], header{Layer: id}, t)
		l.device = d
		if l.w, err = d.Alloc(int64(l.copies) * t.Size()); err != nil {
			return nil, fmt.Errorf("layer %d (%s): %w", id, l.Name, err)
		}
		l.point()
		return l, nil
	})
}

// Logits returns the logits of a text's last token, after a forward of this token alone. It panics for
// other layers than a head and an exit at which the token left.
func (l *Layer) Logits(x *Exec, b *Batch, s Saved) tensor.Mem {
	last := len(l.Parts) - 1
	part := l.Parts[last].(interface {
		Logits(x *Exec, b *Batch, saved tensor.Mem) tensor.Mem
	})
	return part.Logits(x, b.OfPart(last), l.savedOf(last, x, b, s))
}
