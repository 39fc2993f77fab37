//go:build mpi

package mpi

import (
	"fmt"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/commtest"
)

func init() { roles["allocations"] = allocations }

func TestMessagesAllocateNothing(t *testing.T) {
	if out, err := mpirun(t, 2, "allocations").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// allocations: a message allocates nothing, whether it is sent at once or by
// agreement, once as many as are ever under way together have been.
func allocations(t comm.Transport) error {
	g := comm.New(t, comm.Options{})
	for _, bytes := range []int64{64, 1 << 20} {
		out, err := g.Alloc(bytes)
		if err != nil {
			return err
		}
		in, err := g.Alloc(bytes)
		if err != nil {
			return err
		}
		var failed error
		per := testing.AllocsPerRun(100, func() { // as often on both ranks
			if failed == nil {
				_, failed = comm.PingPong(g, 1-g.Rank(), out, in, 3)
			}
			if failed == nil {
				failed = commtest.SwapUpTo(g, 1-g.Rank(), out.Span(0, bytes/2), in)
			}
		})
		if failed != nil {
			return failed
		}
		if per != 0 {
			return fmt.Errorf("%d bytes: %v allocations in four messages there and back", bytes, per)
		}
		g.Free(out)
		g.Free(in)
	}
	return nil
}
