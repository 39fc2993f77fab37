//go:build mpi

package mpi

import (
	"fmt"
	"time"

	gompi "github.com/sbromberger/gompi"
)

// Allreduce runs the library's own MPI_Allreduce, a sum of n float64 on all ranks of the world. It
// runs one time to warm up and then several times. It returns the seconds of each, from a barrier
// on, and the number of wrong elements in the last result. It has no deadline. Collective.
func Allreduce(n, times int) (seconds []float64, wrong int, err error) {
	world := gompi.NewCommunicator(nil)
	rank, size := gompi.WorldRank(), gompi.WorldSize()
	mine, sum := make([]float64, n), make([]float64, n)
	for i := range mine {
		mine[i] = float64(rank + i%16)
	}
	for round := range times + 1 {
		world.Barrier()
		begin := time.Now()
		if err := world.AllreduceFloat64s(sum, mine, gompi.OpSum, 0); err != nil {
			return nil, 0, fmt.Errorf("mpi: allreduce: %w", err)
		}
		if round > 0 {
			seconds = append(seconds, time.Since(begin).Seconds())
		}
	}
	for i, got := range sum {
		if got != float64(size*(size-1)/2+size*(i%16)) { // whole numbers: every order of sums is exact
			wrong++
		}
	}
	return seconds, wrong, nil
}
