package elastic

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"dynmo/src/comm"
	"dynmo/src/files"
)

// Scheduler is the batch system that a run asks to take nodes back. Job is the Scheduler for Slurm.
type Scheduler interface {
	// Keep asks once that the job keep these nodes and give all others back. If the batch system is
	// only busy, the error wraps the package's busy error, and Releases asks again.
	Keep(ctx context.Context, nodes []string) error
	// Nodes returns the names of the nodes that the job has now, in any order.
	Nodes(ctx context.Context) ([]string, error)
}

// errBusy is wrapped by the error of a batch system that cannot answer at the moment.
var errBusy = errors.New("busy")

const (
	// callFor is how long a command of Slurm may take.
	callFor = 10 * time.Second
	// mostOutput is how many bytes of a command's output are read. A job's list of nodes is far
	// shorter.
	mostOutput = 1 << 20
)

// Job is a job of Slurm.
type Job struct {
	Number string        // as Slurm has it: "123", or "123_4" for a task of an array
	limit  time.Duration // of a command; 0: callFor
}

// newJob returns the job of this process.
func newJob(getenv func(string) string) (Job, error) {
	number := getenv("SLURM_JOB_ID")
	if array := getenv("SLURM_ARRAY_JOB_ID"); array != "" { // whose first task has the array's number
		number = array + "_" + getenv("SLURM_ARRAY_TASK_ID")
	}
	if !jobNumber.MatchString(number) {
		return Job{}, fmt.Errorf("the number of the Slurm job is %.80q, want digits", number)
	}
	return Job{Number: number}, nil
}

// busy matches Slurm's messages that a later request may succeed.
var busy = regexp.MustCompile(`(?i)DB index|temporarily`)

// Keep asks Slurm, by scontrol, to leave the job these nodes only. It returns an error, without asking
// Slurm, if one of nodes is not a valid name: Slurm could take such a text for an option.
func (j Job) Keep(ctx context.Context, nodes []string) error {
	for _, node := range nodes {
		if !nodeName.MatchString(node) {
			return fmt.Errorf("%.80q is no name of a node", node)
		}
	}
	out, err := j.call(ctx, "scontrol", "update", "JobId="+j.Number, "NodeList="+strings.Join(nodes, ","))
	if err != nil && busy.MatchString(out) {
		return fmt.Errorf("%w: %w", errBusy, err)
	}
	return err
}

// Nodes returns the names of the nodes that the job has now. It asks Slurm, by squeue.
func (j Job) Nodes(ctx context.Context) ([]string, error) {
	list, err := j.call(ctx, "squeue", "--noheader", "--jobs="+j.Number, "--format=%N")
	if err != nil {
		return nil, err
	}
	if list = strings.TrimSpace(list); list == "" || strings.HasPrefix(list, "-") {
		return nil, fmt.Errorf("squeue: job %s has no nodes", j.Number)
	}
	names, err := j.call(ctx, "scontrol", "show", "hostnames", list)
	return strings.Fields(names), err
}

// call runs a command of Slurm without a shell, and returns the command's output. The command runs in
// a directory that only this user can enter, since scontrol leaves files where it runs. An error has
// the first line of the output.
func (j Job) call(ctx context.Context, program string, args ...string) (out string, err error) {
	dir, remove, err := files.Scratch(os.TempDir(), "dynmo-slurm")
	if err != nil {
		return "", fmt.Errorf("%s: %w", program, err)
	}
	defer remove()
	limit := cmp.Or(j.limit, callFor)
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	defer comm.AfterFunc(limit, cancel)()
	var output capped
	cmd := exec.CommandContext(limited, program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "LC_ALL=C")
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // and its children
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	out = output.String()
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return out, fmt.Errorf("%s: %w", program, ctx.Err())
	case limited.Err() != nil:
		return out, fmt.Errorf("%s %s: no answer in %v", program, args[0], limit)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	return out, fmt.Errorf("%s %s: %s", program, args[0], cmp.Or(first, err.Error()))
}

// capped keeps the first mostOutput bytes that are written.
type capped struct{ bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	c.Buffer.Write(p[:max(0, min(len(p), mostOutput-c.Len()))])
	return len(p), nil
}

const (
	// retryEvery is the time between two requests to a batch system that is busy.
	retryEvery = 2 * time.Second
	// verifyFor is the longest time until the batch system shows the result of a request.
	verifyFor = 5 * time.Second
)

// shrink makes a job keep only the nodes of keep. While the batch system is busy it asks again, until
// the time retry has passed. Then it checks that the job has these nodes. tries is the number of
// requests.
func shrink(ctx context.Context, s Scheduler, keep []string, retry time.Duration) (tries int, err error) {
	late := newTimer(retry - retryEvery/2) // then the next request would come after retry
	defer late.stop()
	for {
		tries++
		err = s.Keep(ctx, keep)
		if !errors.Is(err, errBusy) || late.passed.Load() {
			break
		}
		if !sleep(ctx, retryEvery) {
			return tries, ctx.Err()
		}
	}
	if errors.Is(err, errBusy) {
		return tries, err
	}
	within := verifyFor
	if err != nil { // the call may have had its effect before it failed
		within = 0
	}
	if wrong := verify(ctx, s, keep, within); wrong != nil {
		return tries, cmp.Or(err, wrong)
	}
	return tries, nil
}

// verify returns an error unless, within the given time, the job has the nodes of keep and no others.
func verify(ctx context.Context, s Scheduler, keep []string, within time.Duration) error {
	want := slices.Sorted(slices.Values(keep))
	late := newTimer(within)
	defer late.stop()
	for {
		got, err := s.Nodes(ctx)
		if err == nil && slices.Equal(slices.Sorted(slices.Values(got)), want) {
			return nil
		}
		if late.passed.Load() {
			return cmp.Or(err, fmt.Errorf("the job has %d nodes after that, want %d", len(got), len(want)))
		}
		if !sleep(ctx, verifyFor/10) {
			return ctx.Err()
		}
	}
}

// timer shows whether this process has run for a time since newTimer.
type timer struct {
	passed *atomic.Bool
	stop   func() bool // ends the timer
}

func newTimer(limit time.Duration) timer {
	passed := new(atomic.Bool)
	if limit <= 0 {
		passed.Store(true)
	}
	return timer{passed, comm.AfterFunc(limit, func() { passed.Store(true) })}
}

// sleep waits for the time d, and returns false if ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
