package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// release is the version of a program or library: major, minor and patch.
type release [3]int

// releaseForm matches the first version in a text.
var releaseForm = regexp.MustCompile(`\b(\d+)\.(\d+)(?:\.(\d+))?`)

// releaseOf returns the first version in a text; ok reports whether there is one.
func releaseOf(text string) (r release, ok bool) {
	found := releaseForm.FindStringSubmatch(text)
	if found == nil {
		return r, false
	}
	for i := range r {
		r[i], _ = strconv.Atoi(found[i+1]) // "" where no patch is given
	}
	return r, true
}

// before reports whether r is older than other.
func (r release) before(other release) bool {
	for i := range r {
		if r[i] != other[i] {
			return r[i] < other[i]
		}
	}
	return false
}

// trap is behaviour of a range of releases that surprises users.
type trap struct {
	exam   string  // the exam whose finding has the version
	name   string  // a word that the finding contains
	from   release // the first release with it, as far as known
	below  release // the first release without it; zero: none is known
	text   string
	source string
}

// traps are the known traps. A source of the form "measured: 5.0.7" names the releases that were
// tried.
var traps = []trap{
	{"mpi", "Open MPI", release{5}, release{}, "mpirun ignores OMPI_MCA_rmaps_base_oversubscribe and hwloc_base_binding_policy: write --oversubscribe --bind-to none", "measured: 5.0.7, 6.0.0rc2"},
	{"mpi", "Open MPI", release{5}, release{6}, "SIGTERM to mpirun leaves the ranks a quarter of a second: kill -USR2 stops a run with a checkpoint", "measured: 5.0.7"},
	{"mpi", "Open MPI", release{6}, release{}, "SIGTERM to mpirun kills all ranks at once: kill -USR2 stops a run with a checkpoint", "measured: 6.0.0rc2"},
	{"mpi", "Open MPI", release{5}, release{6}, "mpirun that loses a node may end with status 0: only summary.json says whether a run is finished", "findings/mpirun-lost-daemon.sh: 5.0.7"},
	{"mpi", "Open MPI", release{5}, release{6}, "mpirun mixes standard output and standard error of ranks: read the run directory, not the output", "findings/mpirun-mixes-streams.sh: 5.0.7"},
	{"mpi", "Open MPI", release{4}, release{5}, "SIGTERM to mpirun leaves the ranks about a second: kill -USR2 stops a run with a checkpoint", "measured: 4.1.4"},
	{"mpi", "MPICH", release{4}, release{}, "SIGUSR2 ends mpirun and all ranks: kill -TERM stops a run with a checkpoint", "measured: 4.0.2, 4.2.1, 5.0.2"},
	{"mpi", "MPICH", release{4}, release{}, "no rank ends before the others: elastic.release exit and slurm are as park, restart works", "measured: 4.0.2, 4.2.1, 5.0.2"},
	{"mpi", "MPICH", release{4}, release{5}, "mpirun may end with status 0 after a rank has failed or a signal has stopped the run: only summary.json says whether a run is finished", "measured: 4.0.2, 4.2.1"},
	{"mpi", "MPICH", release{4}, release{5}, "Debian's MPICH makes every rank of srun --mpi=pmix a world of its own: srun --mpi=pmi2", "measured: 4.0.2, 4.2.1"},
	{"slurm", "", release{}, release{24, 11}, "without slurmdbd a job gives nodes back once", "slurm commit 98c2add5bc; measured: 22.05.8"},
	{"slurm", "", release{24, 11}, release{}, "slurmctld waits 10 s in each scancel and requeue for a node whose name does not resolve", "measured: 24.11.5, 26.05.5"},
	{"slurm", "", release{21, 8}, release{}, "srun --mpi=pmix lets ranks leave MPI_Init before others are ready: export SLURM_PMIX_FENCE=ring", "measured: 22.05.8, 24.11.5, 26.05.5"},
	{"pmix", "PMIx", release{5, 0, 8}, release{5, 0, 10}, "ranks hang at their start under Slurm before 25.11", "slurm's changelog of 25.11"},
	{"blas", "OpenBLAS", release{0, 3, 34}, release{}, "losses differ from those of OpenBLAS 0.3.29 and older, from the 9th digit on", "measured: 0.3.21, 0.3.29, 0.3.34"},
	{"kernels", "nvcc", release{11}, release{12}, "no code for the instructions that Hopper GPUs alone have: build with CUDA 12 or later", "measured: 11.8"},
}

// trapsOf returns a line for each known trap of the version in a finding.
func trapsOf(exam, found string) (lines []string) {
	if exam == "mpi" {
		found, _, _ = strings.Cut(found, ";") // the library, without another mpirun
	}
	for _, t := range traps {
		at := strings.Index(found, t.name)
		if t.exam != exam || at < 0 {
			continue
		}
		is, ok := releaseOf(found[at:])
		if ok && !is.before(t.from) && (t.below == release{} || is.before(t.below)) {
			lines = append(lines, fmt.Sprintf("%s (%s)", t.text, t.source))
		}
	}
	return lines
}
