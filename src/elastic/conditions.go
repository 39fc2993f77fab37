package elastic

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

// launched returns an error if nodes cannot be given back from under the launcher of the ranks. mpirun has
// a daemon on every node, and ends the run when Slurm takes a node with its daemon away.
func launched(mode Mode, getenv func(string) string) error {
	switch {
	case mode == exit:
		return nil
	case getenv("SLURM_JOB_ID") == "":
		return errors.New("this is no Slurm job")
	case getenv("OMPI_COMM_WORLD_SIZE") == "" && (getenv("SLURM_STEP_ID") == "" || getenv("SLURM_PROCID") == ""):
		return errors.New("this is no step of a Slurm job, want `srun --mpi=pmix`")
	case getenv("OMPI_COMM_WORLD_SIZE") != "" && mode == Slurm:
		return errors.New("mpirun does not survive the loss of a node, want `srun --mpi=pmix`, or elastic.release = \"restart\"")
	}
	return nil
}

// canLeave returns an error if some rank cannot end before the others: the error of the first such rank.
func canLeave(places []place) error {
	for rank, p := range places {
		if p.CanLeave != "" {
			return fmt.Errorf("rank %d cannot end before the others: %s", rank, p.CanLeave)
		}
	}
	return nil
}

// nodeName matches the name of one node. It matches no text that Slurm would take for a list of nodes
// or for an option.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$`)

// jobNumber matches the number of a job, or of a task of an array of jobs.
var jobNumber = regexp.MustCompile(`^[0-9]{1,10}(_[0-9]{1,10})?$`)

var (
	batchHost = regexp.MustCompile(`(?m)^ +BatchHost=(\S+)`)
	noShrink  = regexp.MustCompile(`(?mi)^ *SchedulerParameters *=.*\bdisable_job_shrink\b`)
)

// resizable returns this job, and the node of its batch script, "" if the job has none. It returns an
// error if Slurm cannot take nodes from the job.
func resizable(nodes []string, getenv func(string) string) (job Job, batch string, err error) {
	if size := getenv("SLURM_HET_SIZE"); size != "" && size != "1" {
		return job, "", errors.New("Slurm cannot resize a heterogeneous job")
	}
	if strings.HasPrefix(getenv("SLURM_DISTRIBUTION"), "arbitrary") {
		return job, "", errors.New("Slurm cannot resize a job whose tasks are distributed arbitrarily")
	}
	for rank, node := range nodes {
		if !nodeName.MatchString(node) {
			return job, "", fmt.Errorf("rank %d: SLURMD_NODENAME = %.80q is no name of a node", rank, node)
		}
	}
	for _, program := range []string{"scontrol", "squeue"} {
		if _, err := exec.LookPath(program); err != nil {
			return job, "", fmt.Errorf("%s is not on PATH of rank 0's node", program)
		}
	}
	if job, err = newJob(getenv); err != nil {
		return job, "", err
	}
	conf, err := job.call(context.Background(), "scontrol", "show", "config")
	if err != nil {
		return job, "", err
	}
	if noShrink.MatchString(conf) {
		return job, "", errors.New("this Slurm takes no nodes from running jobs (SchedulerParameters has disable_job_shrink)")
	}
	about, err := job.call(context.Background(), "scontrol", "show", "job", job.Number)
	if err != nil {
		return job, "", err
	}
	if found := batchHost.FindStringSubmatch(about); found != nil {
		if batch = found[1]; !nodeName.MatchString(batch) {
			return job, "", fmt.Errorf("scontrol show job: BatchHost = %.80q is no name of a node", batch)
		}
	}
	return job, batch, nil
}
