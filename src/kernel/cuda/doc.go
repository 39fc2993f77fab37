// Package cuda is the kernel backend for GPUs: operands in device memory come
// in, work goes onto the stream of the call, results are there when the stream
// has come so far. The kernels are csrc/cuda, in libdynmo_cuda.so, which is
// opened at run time: one binary serves every version of CUDA that the library
// can be built with. Elements are float32, or bfloat16 with float32 sums.
//
// The package builds with the tag cuda; without it, New returns an error. It
// needs no CUDA to build, only to run.
//
// A backend belongs to the device whose context is current when the backend is made. That
// context must be current on the thread of every later call. Streams are device/cuda's: a
// stream has Handle, which returns the CUstream, and Fail, which makes the next Sync return
// an error. Calls are on one stream at a time.
//
// Bits depend on the operands, and on the device's architecture, the compiler and cuBLASLt,
// which Identity names. They depend on the algorithms given to Choose. Of an operand's
// address they depend only on whether it is a multiple of 16 bytes. Indices (tokens,
// targets, columns) are not checked.
package cuda
