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

	// feeds reports whether the part reads the data of a microbatch; feed puts them
	// in place.
	feeds() bool
	feed(x *Exec, b *Batch, saved tensor.Mem, tokens, targets []int32)
	// readings lists what forward leaves for the host, and reading where it leaves
	// the i-th, inside saved.
	readings() []Reading
	reading(x *Exec, b *Batch, saved tensor.Mem, i int) tensor.Mem
	// talks reports whether passes exchange messages with the replicas.
	talks() bool
	// selects reports whether another batch leaves the part than enters it: forward
	// makes it by b.Next.Select, and waits for what it depends on. What the part passes
	// on, and dout, have the tokens of b.Leaves(). Only a layer's last part selects.
	selects() bool
}

// Reading is numbers that forward leaves for the host, float64: a loss, or counts.
type Reading struct {
	Name   string
	Values int
}

// Loss is the name of a reading of one value that is part of the loss: the sum
// over the tokens of a microbatch.
const Loss = "loss"

// basic is embedded by parts that read no data, leave nothing for the host, do not
// talk and pass on all tokens: most.
type basic struct{}

func (basic) feeds() bool                                       { return false }
func (basic) feed(*Exec, *Batch, tensor.Mem, []int32, []int32)  {}
func (basic) readings() []Reading                               { return nil }
func (basic) reading(*Exec, *Batch, tensor.Mem, int) tensor.Mem { return tensor.Mem{} }
func (basic) talks() bool                                       { return false }
func (basic) selects() bool                                     { return false }
