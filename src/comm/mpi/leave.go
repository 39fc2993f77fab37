//go:build mpi

package mpi

// #include "../../../csrc/include/dynmo_mpi.h"
import "C"

import "fmt"

// CanLeave returns an error unless this rank can end while other ranks go on. MPI runs.
func CanLeave() error { return check(C.dynmo_mpi_can_leave()) }

// Leave ends this rank's part in MPI while other ranks go on. Launchers and other ranks take a
// rank that ends without Leave for dead. Groups are not closed. The process ends next, by Exit.
func Leave() error {
	if err := check(C.dynmo_mpi_leave()); err != nil {
		return fmt.Errorf("mpi: leave: %w", err)
	}
	return nil
}

// Exit ends the process with a status, after C's handlers of atexit, if Stop or Leave has ended MPI.
// Else it returns. MPICH 4.2 and 5 take leave of their launcher in such a handler. The launcher takes
// a process that ends without the handler for dead.
func Exit(status int) { C.dynmo_mpi_exit(C.int32_t(status)) }
