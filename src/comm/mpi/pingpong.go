//go:build mpi

package mpi

// #include "../../../csrc/include/dynmo_mpi.h"
import "C"

import (
	"errors"

	"dynmo/src/comm"
	"dynmo/src/tensor"
)

// PingPong does the same as comm.PingPong in plain C, with blocking MPI_Send and
// MPI_Recv, for comparison with the messages of a Group. It returns the mean seconds
// of one message, and has no deadline. t comes from Start or its Split, and no
// message with tag 0 is under way.
func PingPong(t comm.Transport, peer int, out, in tensor.Mem, messages int) (float64, error) {
	group, ours := t.(*transport)
	if !ours {
		return 0, errors.New("mpi: ping-pong over another transport")
	}
	if out.Bytes != in.Bytes {
		panic("mpi: ping-pong of two lengths")
	}
	var first C.int32_t
	if group.rank < peer {
		first = 1
	}
	var seconds C.double
	err := check(C.dynmo_mpi_pingpong(group.group, C.int32_t(peer), first, host(out), host(in), C.int64_t(in.Bytes),
		C.int32_t(messages), &seconds))
	return float64(seconds), err
}
