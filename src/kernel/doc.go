// Package kernel is the boundary to arithmetic: coarse operations on memory, enqueued on a stream.
//
// In come operands (tensor.Mem), dimensions, settings and a device.Stream. Out go changed operands,
// once the stream has done the call. A call returns nothing, and it does not wait. An operand is read,
// set (overwritten) or updated (added to, or changed in place); Operation says which.
//
// Package ref defines what each call computes, in plain Go. Every other backend agrees with ref in the
// suite of package kerneltest. Float32 results may differ by 1e-5 times the sum of the absolute terms
// of an element. Results rounded to bfloat16 may differ by 2^-7 of it.
//
// Shapes are row-major. n is the number of tokens of all sequences, b the number of sequences, which
// may have different lengths. c is channels, o output channels, v columns of logits, nh heads, and kv
// heads that have keys. Floating-point operands have the backend's DType unless a comment says
// otherwise. Wide operands, and gradients of weights, have DType.Wide. A word in front of a shape is
// the element type: I32 (n).
//
// A mask has a bit for each of n elements, as U64 (ceil(n/64)): bit i%64 of word i/64 belongs to
// element i.
//
// Invariants. Operands have the length of their shape and lie in the backend's space; if not, the
// call panics, since that is the caller's error. Operands do not overlap unless a comment says so.
// Equal operands give equal bits, whatever else runs and however many threads a backend has. One
// goroutine uses a Backend.
//
// Others rely on these, so do not change them alone. Backends and package null rely on the order of an
// operation's operands. Bits of losses depend on the orders of additions that comments name, and on
// SquareBlock and FixedUnit. Code in csrc repeats these two, Block and the order of bits in masks.
//
// Free to change: how a backend computes, if kerneltest still passes. That changes bits, so
// results of other binaries can no longer be compared bit by bit. A backend may do two operations in
// one call and leave out the rounding between them.
package kernel
