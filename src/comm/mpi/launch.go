package mpi

import (
	"fmt"
	"os"
	"strconv"
)

// sizeVariables hold how many ranks a launcher meant to start, the innermost
// launcher first: mpirun's helpers on the nodes of a job are tasks of a Slurm
// step themselves, and their number is not that of the ranks.
var sizeVariables = []string{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}

// Launched reports whether a launcher has started this process as a rank, so
// that ranks are processes; else they may as well be goroutines.
func Launched() bool { return launched(os.Getenv) }

func launched(getenv func(string) string) bool {
	for _, name := range []string{"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK"} {
		if getenv(name) != "" {
			return true
		}
	}
	// Slurm sets these without MPI too, and for one task in the batch script.
	tasks, _ := strconv.Atoi(getenv("SLURM_STEP_NUM_TASKS"))
	return getenv("SLURM_PROCID") != "" && tasks > 1
}

// checkAlone returns an error if MPI made a world of one rank in a process that
// was launched as one of several: each would train alone and overwrite the
// others' files.
func checkAlone(size int, getenv func(string) string) error {
	if size != 1 {
		return nil
	}
	for _, name := range sizeVariables {
		meant, err := strconv.Atoi(getenv(name))
		if err != nil {
			continue
		}
		if meant > 1 {
			return LaunchError{fmt.Errorf("mpi: the world has 1 rank although %s=%d: the launcher and this MPI library "+
				"do not find each other; try `srun --mpi=pmix`, with MPICH `srun --mpi=pmi2`, or mpirun of the same MPI", name, meant)}
		}
		return nil
	}
	return nil
}

// LaunchRank returns the rank that the launcher gave this process, before MPI
// has started; 0 if it gave none.
func LaunchRank() int { return launchRank(os.Getenv) }

func launchRank(getenv func(string) string) int {
	for _, name := range []string{"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"} {
		if rank, err := strconv.Atoi(getenv(name)); err == nil {
			return rank
		}
	}
	return 0
}
