package model

import "dynmo/src/tensor"

// part is a piece of a layer: embedding, attention, MLP or head. Its saved
// memory lasts from forward to backwardWeight of a microbatch, its held memory
// from backwardInput to backwardWeight. What passes between parts is (n, C),
// but between slices of the head (see crossing).
type part interface {
	// params returns the part's parameters, in any order.
	params() []*Param
	// sizes returns the bytes of saved and held memory.
	sizes(x *Exec) (saved, held int64)
	// output returns where forward leaves its result, inside saved.
	output(x *Exec, saved tensor.Mem) tensor.Mem
	// forward computes output from inp.
	forward(x *Exec, saved, inp tensor.Mem)
	// backwardInput sets din, the gradient of inp, from dout, that of output.
	backwardInput(x *Exec, saved, held, inp, dout, din tensor.Mem)
	// backwardWeight adds to the parameters' gradients. dout is as it was in backwardInput.
	backwardWeight(x *Exec, saved, held, inp, dout tensor.Mem)
}
