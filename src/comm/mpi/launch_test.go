package mpi

import (
	"strings"
	"testing"
)

func TestLaunched(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		want bool
	}{
		"by hand":                    {nil, false},
		"mpirun of Open MPI":         {map[string]string{"OMPI_COMM_WORLD_SIZE": "4"}, true},
		"mpirun, one rank":           {map[string]string{"OMPI_COMM_WORLD_SIZE": "1"}, true},
		"mpiexec of MPICH":           {map[string]string{"PMI_RANK": "0", "PMI_SIZE": "4"}, true},
		"srun --mpi=pmix":            {map[string]string{"PMIX_RANK": "3", "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"}, true},
		"srun without MPI":           {map[string]string{"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"}, true},
		"batch script":               {map[string]string{"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, false},
		"batch script, older Slurms": {map[string]string{"SLURM_PROCID": "0"}, false},
	} {
		if got := launched(func(key string) string { return c.env[key] }); got != c.want {
			t.Errorf("%s: launched = %v, want %v", name, got, c.want)
		}
	}
}

func TestCheckAlone(t *testing.T) {
	for name, c := range map[string]struct {
		size int
		env  map[string]string
		want string // part of the error; empty: none
	}{
		"by hand":                  {1, nil, ""},
		"srun finds no PMIx":       {1, map[string]string{"SLURM_STEP_NUM_TASKS": "4"}, "SLURM_STEP_NUM_TASKS=4"},
		"mpirun of another MPI":    {1, map[string]string{"OMPI_COMM_WORLD_SIZE": "8"}, "OMPI_COMM_WORLD_SIZE=8"},
		"mpirun -np 1 on 4 nodes":  {1, map[string]string{"OMPI_COMM_WORLD_SIZE": "1", "SLURM_STEP_NUM_TASKS": "4"}, ""},
		"a world as it should be":  {4, map[string]string{"SLURM_STEP_NUM_TASKS": "4"}, ""},
		"a variable with nonsense": {1, map[string]string{"SLURM_STEP_NUM_TASKS": "many"}, ""},
	} {
		err := checkAlone(c.size, func(key string) string { return c.env[key] })
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "srun --mpi=pmix")):
			t.Errorf("%s: error %v does not name %s and the remedy", name, err, c.want)
		}
	}
}

func TestLaunchRank(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		want int
	}{
		"by hand":                    {nil, 0},
		"mpirun of Open MPI":         {map[string]string{"OMPI_COMM_WORLD_RANK": "3"}, 3},
		"mpirun in a Slurm step":     {map[string]string{"OMPI_COMM_WORLD_RANK": "5", "SLURM_PROCID": "1"}, 5},
		"srun --mpi=pmix":            {map[string]string{"PMIX_RANK": "2", "SLURM_PROCID": "2"}, 2},
		"mpiexec of MPICH":           {map[string]string{"PMI_RANK": "1"}, 1},
		"srun, MPI not found by it":  {map[string]string{"SLURM_PROCID": "7"}, 7},
		"a variable that is no rank": {map[string]string{"PMIX_RANK": "x", "SLURM_PROCID": "4"}, 4},
	} {
		if got := launchRank(func(key string) string { return c.env[key] }); got != c.want {
			t.Errorf("%s: rank %d, want %d", name, got, c.want)
		}
	}
}
