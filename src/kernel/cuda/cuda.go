//go:build cuda && cgo

package cuda

// #include "calls.h"
import "C"

import (
	"fmt"
	"math"
	"unsafe"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// backend is the backend of one rank, with handles and workspace on its device.
type backend struct {
	kernel.Calls
	table *C.dynmo_cuda_table
	c     *C.dynmo_cuda
}

// stream is a device.Stream of this device.
type stream interface {
	device.Stream
	// Handle returns the CUstream.
	Handle() unsafe.Pointer
	// Fail makes the next Sync return err, unless something failed before.
	Fail(err error)
}

// New returns the backend for elements of type d, tensor.F32 or tensor.BF16, on
// the device of the current context. The error names the fault of the library or the
// device.
func New(d tensor.DType) (kernel.Backend, error) {
	kinds := map[tensor.DType]C.int32_t{tensor.F32: C.DYNMO_CUDA_F32, tensor.BF16: C.DYNMO_CUDA_BF16}
	kind, ok := kinds[d]
	if !ok {
		return nil, fmt.Errorf("cuda: elements of type %s: want f32 or bf16", d)
	}
	table, err := library()
	if err != nil {
		return nil, err
	}
	k := &backend{table: table}
	k.Calls = kernel.NewCalls(d, tensor.Device, d == tensor.BF16, k.do)
	if err := k.failure("open", C.call_open(table, kind, &k.c)); err != nil {
		return nil, err
	}
	return k, nil
}

// Close gives back the backend's handles and workspace.
func (k *backend) Close() error {
	err := k.failure("close", C.call_close(k.table, k.c))
	k.c = nil
	return err
}

// Identity returns everything but the binary that the backend's bits depend on.
func (k *backend) Identity() string {
	var text [textBytes]C.char
	if err := k.failure("identity", C.call_identity(k.table, k.c, &text[0], textBytes)); err != nil {
		return err.Error()
	}
	return C.GoString(&text[0])
}

// Name returns "cuda".
func (*backend) Name() string { return "cuda" }

// failure returns the error that a status of a call is, nil if it is none.
func (k *backend) failure(call string, status C.int32_t) error {
	if status == 0 {
		return nil
	}
	var text [textBytes]C.char
	if C.call_error(k.table, status, &text[0], textBytes) != 0 {
		return fmt.Errorf("cuda: %s: status %d", call, status)
	}
	return fmt.Errorf("cuda: %s: %s", call, C.GoString(&text[0]))
}

// enqueued looks at the status of a call that should have put work on s.
func (k *backend) enqueued(s device.Stream, call string, status C.int32_t) {
	if status != 0 {
		s.(stream).Fail(k.failure(call, status))
	}
}

// handle returns the CUstream of s.
func handle(s device.Stream) unsafe.Pointer { return s.(stream).Handle() }

// size returns one dimension of a shape.
func size(n int) C.int32_t {
	if n > math.MaxInt32 {
		panic("cuda: a dimension does not fit in 32 bits")
	}
	return C.int32_t(n)
}
