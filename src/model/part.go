package model

import "dynmo/src/tensor"

// Part is one step of a layer's computation: embedding, attention, MLP or head. Memory `saved` lasts
// from Forward to BackwardWeight of a microbatch, and `held` from BackwardInput to BackwardWeight.
// Both are laid out for the capacity of a microbatch; passes use as much as the batch has tokens. A
// pass reports a failure by its error. A part that exchanges messages with replicas (Traits.Talks)
// must make the same calls, and return errors alike, on all replicas of its stage.
type Part interface {
	// Params returns the part's parameters, in any order.
	Params() []*Param
	// Leaves returns the width of the part's output.
	Leaves() Width
	// Memory returns the place of the part's output inside saved. It also returns the bytes that
	// the part takes of saved, and of held, at capacity. With absent memory it only counts bytes.
	Memory(x *Exec, b *Batch, saved, held tensor.Mem) (out tensor.Mem, savedBytes, heldBytes int64)
	// Forward computes the output from inp.
	Forward(x *Exec, b *Batch, saved, inp tensor.Mem) error
	// BackwardInput sets din, the gradient of inp, from dout, the gradient of the output. din is
	// absent if nothing before the part is trained. Work that only din needs is then left out.
	BackwardInput(x *Exec, b *Batch, saved, held, inp, dout, din tensor.Mem) error
	// BackwardWeight adds to the gradients of the parameters that are not frozen.
	// dout has the same values as in BackwardInput.
	BackwardWeight(x *Exec, b *Batch, saved, held, inp, dout tensor.Mem) error

	// Traits returns the facts that the pipeline must know about the part.
	Traits() Traits
	// NewWork returns what the part keeps for a microbatch besides its activations; nil: nothing.
	NewWork(x *Exec, room Room) Work
	// Tuned returns pointers to the part's numbers that Layer.Tune sets, all to one value. The
	// numbers belong to the layer's state. nil: there are none.
	Tuned() []*float64
	// Feed gives the part the tokens and targets of a full microbatch, B·T each, before Forward. The
	// part copies those that it reads.
	Feed(x *Exec, b *Batch, saved tensor.Mem, tokens, targets []int32)
	// Readings lists the numbers that Forward leaves for the host. Reading returns the place of
	// the i-th of them inside saved.
	Readings() []Reading
	Reading(x *Exec, b *Batch, saved tensor.Mem, i int) tensor.Mem
}

// teacher is the part at the end of a chain whose layers learn from it.
type teacher interface {
	Part
	// Likeliest returns, after a forward, the column of each token's largest logit, I32 (tokens).
	Likeliest(x *Exec, b *Batch, saved tensor.Mem) tensor.Mem
}

// Reading describes float64 numbers that a forward leaves for the host: a loss, or counts.
type Reading struct {
	Name   string
	Values int // how many numbers
	// Worked is set where the reading is one I32 instead, from which the number of computed tokens
	// follows after the step. Worked converts the I32 to that number.
	Worked func(reading int) int
}

// Loss is the name of a reading of one value that is part of the loss: the sum
// over the tokens of a microbatch.
const Loss = "loss"

// Basic has the defaults of a Part, for parts to embed: the part reads no data and leaves nothing
// for the host. It sends no messages, keeps no Work and passes on all tokens.
type Basic struct{}

func (Basic) Traits() Traits                                    { return Traits{} }
func (Basic) NewWork(*Exec, Room) Work                          { return nil }
func (Basic) Tuned() []*float64                                 { return nil }
func (Basic) Feed(*Exec, *Batch, tensor.Mem, []int32, []int32)  {}
func (Basic) Readings() []Reading                               { return nil }
func (Basic) Reading(*Exec, *Batch, tensor.Mem, int) tensor.Mem { return tensor.Mem{} }
