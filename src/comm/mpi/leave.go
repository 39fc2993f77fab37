//go:build mpi

package mpi

// #include "../../../csrc/include/dynmo_mpi.h"
import "C"

import "fmt"

// CanLeave returns an error unless Leave can tell the launcher of this process. MPI runs.
func CanLeave() error { return check(C.dynmo_mpi_can_leave()) }

// Leave tells the launcher that this process takes part no longer, while other ranks go on:
// a launcher takes a rank that ends without it for dead. Groups are not closed, and
// nothing of MPI is called any more: the process ends next.
func Leave() error {
	if err := check(C.dynmo_mpi_leave()); err != nil {
		return fmt.Errorf("mpi: leave: %w", err)
	}
	return nil
}
