//go:build mpi

package mpi

// The paths are Debian's; elsewhere CGO_CFLAGS and CGO_LDFLAGS, which come
// first, hold what `mpicc --showme:compile` and `--showme:link` print.

// #cgo linux CFLAGS: -I/usr/lib/x86_64-linux-gnu/openmpi/include
// #cgo linux LDFLAGS: -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi -ldl
// The shim keeps no pointer to a result after it returns, and calls no Go: calls
// that are declared so cost less, and their results may lie on the stack.

// #cgo noescape dynmo_mpi_pingpong
// #cgo noescape dynmo_mpi_recv_begin
// #cgo noescape dynmo_mpi_send_begin
// #cgo noescape dynmo_mpi_test
// #cgo nocallback dynmo_mpi_pingpong
// #cgo nocallback dynmo_mpi_recv_begin
// #cgo nocallback dynmo_mpi_send_begin
// #cgo nocallback dynmo_mpi_test
// #include "../../../csrc/include/dynmo_mpi.h"
import "C"

import "errors"

// check turns a status of the shim into an error, nil for 0.
func check(status C.int32_t) error {
	if status == 0 {
		return nil
	}
	var text [512]C.char // MPI_MAX_ERROR_STRING is 256 in Open MPI, 512 in MPICH
	C.dynmo_mpi_error(status, &text[0], C.int32_t(len(text)))
	return errors.New(C.GoString(&text[0]))
}
