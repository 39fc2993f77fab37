package mpi

import (
	"strings"
	"testing"
)

func TestCheckLauncher(t *testing.T) {
	const (
		open41  = "Open MPI v4.1.4, package: Debian OpenMPI"
		without = "mca:pmix:ext3x:version\nmca:pmix:flux:version\n"
		older   = without + "mca:pmix:s1:version\nmca:pmix:s2:version\n"
	)
	step := func(more ...string) map[string]string {
		env := map[string]string{"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}
		for _, name := range more {
			env[name] = "1"
		}
		return env
	}
	for name, c := range map[string]struct {
		env            map[string]string
		library, parts string
		want           string // part of the error; empty: none
	}{
		"by hand":                   {nil, open41, without, ""},
		"plain srun":                {step(), open41, without, "tasks without MPI"},
		"plain srun, Slurm's PMI-1": {step(), open41, older, ""},
		"--mpi=pmi2":                {step("PMI_RANK"), open41, without, "--mpi=pmi2"},
		"--mpi=pmi2, known":         {step("PMI_RANK"), open41, older, ""},
		"--mpi=pmix":                {step("PMIX_RANK"), open41, without, ""},
		"mpirun in a step":          {step("OMPI_COMM_WORLD_SIZE"), open41, without, ""},
		"MPICH":                     {step("PMI_RANK"), "MPICH Version: 4.0.2", "", ""},
		"no ompi_info":              {step(), open41, "", ""},
		"one task":                  {map[string]string{"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, open41, without, ""},
	} {
		err := checkLauncher(func(key string) string { return c.env[key] },
			func() string { return c.library }, func() string { return c.parts })
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "srun --mpi=pmix")):
			t.Errorf("%s: error %v does not name %q and the remedy", name, err, c.want)
		}
	}
}
