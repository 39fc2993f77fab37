package mpi

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// LaunchError is what is wrong with how ranks were launched: every rank has it.
type LaunchError struct{ error }

// checkLauncher returns an error for tasks of a Slurm step that Open MPI cannot join: srun started
// them without PMIx, and this Open MPI has none of the older ways. Other libraries may join, or
// report a missing part themselves.
func checkLauncher(getenv func(string) string, library func() string, parts func() string) error {
	tasks, _ := strconv.Atoi(getenv("SLURM_STEP_NUM_TASKS"))
	switch {
	case tasks < 2, getenv("SLURM_PROCID") == "", getenv("PMIX_RANK") != "", getenv("OMPI_COMM_WORLD_SIZE") != "":
		return nil
	case !strings.HasPrefix(library(), "Open MPI"):
		return nil
	}
	older, started := "s1", "without MPI"
	if getenv("PMI_RANK") != "" {
		older, started = "s2", "with --mpi=pmi2"
	}
	if list := parts(); list == "" || strings.Contains(list, "mca:pmix:"+older+":") {
		return nil
	}
	return LaunchError{fmt.Errorf("mpi: srun started SLURM_STEP_NUM_TASKS=%d tasks %s, which this Open MPI cannot join: "+
		"write `srun --mpi=pmix` (`srun --mpi=list` shows whether this Slurm has it), or mpirun", tasks, started)}
}

// openMPIParts returns what Open MPI says it consists of; "" if it does not.
func openMPIParts() string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ompi_info", "--parsable").Output()
	if err != nil {
		return ""
	}
	return string(out)
}
