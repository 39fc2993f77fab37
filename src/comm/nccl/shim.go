//go:build cgo

package nccl

// #cgo linux LDFLAGS: -ldl
// An owner asks over and over whether NCCL is done; the call is cheaper as it calls no Go.

// #cgo noescape dynmo_nccl_ready
// #cgo nocallback dynmo_nccl_ready
// #include "../../../csrc/include/dynmo_nccl.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"dynmo/src/tensor"
)

// check turns a status of the shim into an error, nil for 0. k may be nil.
func check(k *C.dynmo_nccl, status C.int32_t) error {
	if status == 0 {
		return nil
	}
	var text [1024]C.char // NCCL's last complaint is a line of its log
	C.dynmo_nccl_error(k, status, &text[0], C.int32_t(len(text)))
	return errors.New(C.GoString(&text[0]))
}

// Version returns the version of the library, such as "2.18.5", and opens it.
// The error says that there is none, or that it is too old.
func Version() (string, error) {
	code, err := version()
	if err != nil {
		return "", fmt.Errorf("nccl: %w", err)
	}
	return fmt.Sprintf("%d.%d.%d", code/10000, code/100%100, code%100), nil
}

// version returns the library's own code of its version.
func version() (int, error) {
	var code C.int32_t
	err := check(nil, C.dynmo_nccl_open(&code))
	return int(code), err
}

// LimitsCTAs reports whether the library takes a limit of the CTAs of a communicator.
func LimitsCTAs() bool {
	code, err := version()
	return err == nil && code >= C.DYNMO_NCCL_LIMITS
}

// splits reports whether the library can split a communicator.
func splits() bool {
	code, err := version()
	return err == nil && code >= C.DYNMO_NCCL_SPLITS
}

// identity lets the ranks of one communicator find each other.
type identity [C.DYNMO_NCCL_ID_BYTES]byte

func newIdentity() (identity, error) {
	var id identity
	err := check(nil, C.dynmo_nccl_id(unsafe.Pointer(&id)))
	return id, err
}

// communicator is this rank's side of a set of ranks, on the GPU whose context was
// current when it was begun. One thread makes all its calls (see owner). After a call that
// begins something only ready and abort may be called until ready reports true.
type communicator struct{ k *C.dynmo_nccl }

// begin begins a communicator whose kernels take at most ctas blocks each.
func begin(id identity, rank, ranks, ctas int) (communicator, error) {
	var c communicator
	err := check(nil, C.dynmo_nccl_begin(unsafe.Pointer(&id), C.int32_t(rank), C.int32_t(ranks), C.int32_t(ctas), &c.k))
	return c, err
}

// begun reports whether there is a communicator.
func (c communicator) begun() bool { return c.k != nil }

// ready reports whether the last call that began something is done. An error may
// belong to a message that is under way.
func (c communicator) ready() (bool, error) {
	var ready C.int32_t
	err := check(c.k, C.dynmo_nccl_ready(c.k, &ready))
	return ready != 0, err
}

// split begins a communicator of the ranks with equal color, ordered by key, none with
// comm.Outside. It is ready when c is. Collective.
func (c communicator) split(color, key, ctas int) (communicator, error) {
	var part communicator
	err := check(c.k, C.dynmo_nccl_split(c.k, C.int32_t(color), C.int32_t(key), C.int32_t(ctas), &part.k))
	return part, err
}

// groupBegin and groupEnd enclose messages of one communicator that become one kernel.
func groupBegin() error                { return check(nil, C.dynmo_nccl_group_begin()) }
func (c communicator) groupEnd() error { return check(c.k, C.dynmo_nccl_group_end()) }

// send begins to enqueue a message on a stream of the GPU.
func (c communicator) send(m tensor.Mem, to int, stream unsafe.Pointer) error {
	return check(c.k, C.dynmo_nccl_send(c.k, on(m), C.int64_t(m.Bytes), C.int32_t(to), stream))
}

// recv begins to enqueue the receive of one.
func (c communicator) recv(m tensor.Mem, from int, stream unsafe.Pointer) error {
	return check(c.k, C.dynmo_nccl_recv(c.k, on(m), C.int64_t(m.Bytes), C.int32_t(from), stream))
}

// on returns where m begins and panics if NCCL could not reach it there.
func on(m tensor.Mem) unsafe.Pointer {
	if m.Space != tensor.Device {
		panic("nccl: transfer of host memory")
	}
	return m.Ptr
}

// finish begins the end of c, for which all its ranks wait. Collective.
func (c communicator) finish() error { return check(c.k, C.dynmo_nccl_finish(c.k)) }

// destroy frees c, which is ready after finish.
func (c *communicator) destroy() error {
	err := check(nil, C.dynmo_nccl_destroy(c.k))
	c.k = nil
	return err
}

// abort ends all messages under way and frees c. NCCL may wait for other work of the GPU.
func (c communicator) abort() error { return check(nil, C.dynmo_nccl_abort(c.k)) }
