package mod

import (
	"dynmo/src/kernel"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// readingsOfRouting is the number of values that a routed block leaves for the host: the
// tokens that are there; the tokens taken; the correct predictions whether a token is among
// the first; and the sums over the tokens of the router's and of the predictor's
// cross-entropy, in thousandths. A prediction is the predictor's, or else the router's
// sigmoid(r) > 0.5. The cross-entropies are no part of the reported loss.
const readingsOfRouting = 5

// routedCounts is the name of these values.
const routedCounts = "routed"

// Readings are those of the routing, then those of the block.
func (r *routed) Readings() []model.Reading {
	return append([]model.Reading{{Name: routedCounts, Values: readingsOfRouting}}, r.block.Readings()...)
}

func (r *routed) Reading(x *model.Exec, b *model.Batch, saved tensor.Mem, i int) tensor.Mem {
	s := r.saved(x, x.Cut(b, saved))
	if i == 0 {
		return s.decided.readings
	}
	return r.block.Reading(x, b.Work.(*inner).inside, s.within(), i-1)
}

// guesses reports whether the block decides on each token alone, so that counts vary: by a predictor;
// or in a text, where who is first is not known, by the router's sigmoid, which Auxiliary has taught it.
func (r *routed) guesses(x *model.Exec) bool { return r.Predictor || x.Text != nil }

// decide has the device find and list the tokens that are taken. It waits only where counts vary, for
// how many they are; a second forward finds the same ones.
func (r *routed) decide(x *model.Exec, b *model.Batch, s routedSaved) error {
	in, at, n := b.Work.(*inner), s.decided, b.Tokens
	d := kernel.Depths{
		Capacity: r.Capacity, Threshold: r.Threshold, One: r.One, Router: r.Auxiliary * x.Scale, Predictor: x.Scale,
	}
	guess, dguess := s.guess, at.dguess
	if r.guesses(x) && !r.Predictor {
		d.Threshold, guess, dguess = 0.5, s.logits, at.dlogits
	}
	x.Backend.TakeTokens(x.Stream, d, at.taken, at.readings, at.dlogits, dguess, s.logits, guess, b.Offsets, n, b.Sequences)
	if err := r.force(x, b, in, at); err != nil {
		return err
	}
	room := r.room(x)
	x.Backend.ListTokens(x.Stream, d, at.rows, at.factors, in.positions(room), in.offsets(), at.taken, s.logits, b.Positions, b.Offsets,
		n, b.Sequences, room)
	if r.guesses(x) && !x.Repeats {
		return in.read(at.rows)
	}
	return nil
}
