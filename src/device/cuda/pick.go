package cuda

import (
	"fmt"
	"os"
	"strconv"
)

// GPU identifies the GPU of a device.
type GPU struct {
	Name         string // of the product
	UUID         string // GPU-…: unique worldwide
	Bus          string // domain:bus:device.function
	Major, Minor int    // compute capability
	Memory       int64  // bytes
}

// String returns "NVIDIA H200 (sm_90, 139.7 GiB, 00000000:4e:00.0)".
func (g GPU) String() string {
	return fmt.Sprintf("%s (sm_%d%d, %.1f GiB, %s)", g.Name, g.Major, g.Minor, float64(g.Memory)/(1<<30), g.Bus)
}

// localVariables have a process's number among those of its host, as set by launchers: Open MPI,
// Slurm, Intel MPI, MPICH. Helper processes of mpirun are themselves tasks of a Slurm step, so
// Slurm's variable comes after Open MPI's.
var localVariables = []string{"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"}

// LocalRank returns this process's number among those of its host, from 0 on, as its launcher set
// it. It returns 0 if no launcher did.
func LocalRank() int { return localRank(os.Getenv) }

func localRank(getenv func(string) string) int {
	for _, name := range localVariables {
		if rank, err := strconv.Atoi(getenv(name)); err == nil && rank >= 0 {
			return rank
		}
	}
	return 0
}

// Pick returns the ordinal of the GPU for a rank. A rank has its own GPU in two cases: the process
// sees a GPU for each rank of the host, or the launcher shows each rank one GPU. Otherwise several
// ranks share a GPU.
func Pick(localRank, visible int) int {
	if localRank < 0 || visible < 1 {
		panic("cuda: Pick of a negative rank or of no GPU")
	}
	return localRank % visible
}
