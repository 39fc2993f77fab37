package model

import "dynmo/src/tensor"

// Part is a piece of a layer: embedding, attention, MLP or head. Its saved
// memory lasts from forward to backwardWeight of a microbatch, its held memory
// from backwardInput to backwardWeight. Memory is laid out for the capacity of a
// microbatch; passes see as much of it as the batch has tokens. A part that fails
// says so; one that talks does the same on all replicas of its stage.
type Part interface {
	// Params returns the part's parameters, in any order.
	Params() []*Param
	// Leaves returns what the part passes on.
	Leaves() Width
	// Memory returns where forward leaves what the part passes on, inside saved, and
	// how many bytes the part takes of either memory at capacity.
	Memory(x *Exec, b *Batch, saved, held tensor.Mem) (out tensor.Mem, savedBytes, heldBytes int64)
	// Forward computes output from inp.
	Forward(x *Exec, b *Batch, saved, inp tensor.Mem) error
	// BackwardInput sets din, the gradient of inp, from dout, that of output. Where
	// nothing before the part is trained there is no din, and what only din needs is
	// left out.
	BackwardInput(x *Exec, b *Batch, saved, held, inp, dout, din tensor.Mem) error
	// BackwardWeight adds to the gradients of the parameters that are not frozen.
	// dout is as it was in backwardInput.
	BackwardWeight(x *Exec, b *Batch, saved, held, inp, dout tensor.Mem) error

	// Traits says what the pipeline must know of the part.
	Traits() Traits
	// NewWork returns what the part keeps of a microbatch beside its activations; nil: nothing.
	NewWork(x *Exec, room Room) Work
	// Tuned returns the numbers of the part that a kind of dynamism sets between steps, all to one
	// value. They are part of the layer's state. nil: there are none.
	Tuned() []*float64
	// Feed puts the data of a microbatch in place, if the part reads any.
	Feed(x *Exec, b *Batch, saved tensor.Mem, tokens, targets []int32)
	// Readings lists what forward leaves for the host, and reading where it leaves
	// the i-th, inside saved.
	Readings() []Reading
	Reading(x *Exec, b *Batch, saved tensor.Mem, i int) tensor.Mem
}

// teacher is the part at the end of a chain whose layers learn from it.
type teacher interface {
	Part
	// Likeliest returns, after a forward, the column of each token's largest logit, I32 (tokens).
	Likeliest(x *Exec, b *Batch, saved tensor.Mem) tensor.Mem
}

// Reading is numbers that forward leaves for the host, float64: a loss, or counts.
type Reading struct {
	Name   string
	Values int
	// Worked is set where the reading is one I32 that says, after the step, how many tokens
	// the layer computed: Worked(reading) of them.
	Worked func(reading int) int
}

// Loss is the name of a reading of one value that is part of the loss: the sum
// over the tokens of a microbatch.
const Loss = "loss"

// Basic is embedded by parts that read no data, leave nothing for the host, do not
// talk, keep no Work and pass on all tokens: most.
type Basic struct{}

func (Basic) Traits() Traits                                    { return Traits{} }
func (Basic) NewWork(*Exec, Room) Work                          { return nil }
func (Basic) Tuned() []*float64                                 { return nil }
func (Basic) Feed(*Exec, *Batch, tensor.Mem, []int32, []int32)  {}
func (Basic) Readings() []Reading                               { return nil }
func (Basic) Reading(*Exec, *Batch, tensor.Mem, int) tensor.Mem { return tensor.Mem{} }
