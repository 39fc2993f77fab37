package model

import "dynmo/src/tensor"

// part is a piece of a layer: embedding, attention, MLP or head. Its saved
// memory lasts from forward to backwardWeight of a microbatch, its held memory
// from backwardInput to backwardWeight. Memory is laid out for the capacity of a
// microbatch; passes see as much of it as the batch has tokens. A part that fails
// says so; one that talks does the same on all replicas of its stage.
type part interface {
	// params returns the part's parameters, in any order.
	params() []*Param
	// leaves returns what the part passes on.
	leaves() Width
	// memory returns where forward leaves what the part passes on, inside saved, and
	// how many bytes the part takes of either memory at capacity.
	memory(x *Exec, b *Batch, saved, held tensor.Mem) (out tensor.Mem, savedBytes, heldBytes int64)
	// forward computes output from inp.
	forward(x *Exec, b *Batch, saved, inp tensor.Mem) error
	// backwardInput sets din, the gradient of inp, from dout, that of output. Where
	// nothing before the part is trained there is no din, and what only din needs is
	// left out.
	backwardInput(x *Exec, b *Batch, saved, held, inp, dout, din tensor.Mem) error
	// backwardWeight adds to the gradients of the parameters that are not frozen.
	// dout is as it was in backwardInput.
	backwardWeight(x *Exec, b *Batch, saved, held, inp, dout tensor.Mem) error

	// traits says what the pipeline must know of the part.
	traits() Traits
	// newWork returns what the part keeps of a microbatch beside its activations; nil: nothing.
	newWork(x *Exec, room Room) Work
	// tuned returns a number of the part that a kind of dynamism sets between steps, and
	// that is part of the layer's state; nil: there is none.
	tuned() *float64
	// feed puts the data of a microbatch in place, if the part reads any.
	feed(x *Exec, b *Batch, saved tensor.Mem, tokens, targets []int32)
	// readings lists what forward leaves for the host, and reading where it leaves
	// the i-th, inside saved.
	readings() []Reading
	reading(x *Exec, b *Batch, saved tensor.Mem, i int) tensor.Mem
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

// basic is embedded by parts that read no data, leave nothing for the host, do not
// talk, keep no Work and pass on all tokens: most.
type basic struct{}

func (basic) traits() Traits                                    { return Traits{} }
func (basic) newWork(*Exec, Room) Work                          { return nil }
func (basic) tuned() *float64                                   { return nil }
func (basic) feed(*Exec, *Batch, tensor.Mem, []int32, []int32)  {}
func (basic) readings() []Reading                               { return nil }
func (basic) reading(*Exec, *Batch, tensor.Mem, int) tensor.Mem { return tensor.Mem{} }
