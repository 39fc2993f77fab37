package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"dynmo/src/expect"
)

// Tests named TestTrain… run the real program, like a user.

// limit ends a run that hangs. It is far above the length of a run, even on a busy host.
const limit = 5 * time.Minute

// soon returns how long a run may take that is refused or loses a rank. It is 15 seconds on a
// machine that starts four processes within one second, and proportionally longer on a slower
// machine.
var soon = sync.OnceValue(func() time.Duration {
	began := time.Now()
	var starts sync.WaitGroup
	for range 4 {
		starts.Go(func() { _ = exec.Command("go", "version").Run() })
	}
	starts.Wait()
	return 15 * max(time.Second, time.Since(began))
})

// TestMain removes the program that the tests built.
func TestMain(m *testing.M) {
	status := m.Run()
	if dir, err := built(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(status)
}

// built makes the folder for the built program.
var built = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "dynmo-e2e") })

// tags are the build tags of this test binary, in the form of -tags.
var tags = sync.OnceValue(func() string {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-tags" {
			return s.Value
		}
	}
	return ""
})

var build = sync.OnceValues(func() (program string, err error) {
	dir, err := built()
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "dynmo")
	if out, err := exec.Command("go", "build", "-ldflags", "-w", "-tags", tags(), "-o", program, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return program, nil
})

// world is a way to run dynmo: with processes under mpirun, or with goroutines if ranks is 0.
type world struct{ ranks int }

var (
	alone = world{}
	four  = world{4} // ranks for settings with four stages
)

func (w world) String() string {
	if w.ranks == 0 {
		return "goroutines"
	}
	return "mpirun"
}

// each runs a test with processes and with goroutines.
func each(t *testing.T, test func(t *testing.T, w world)) {
	for _, w := range []world{alone, four} {
		t.Run(w.String(), func(t *testing.T) {
			w.need(t)
			t.Parallel()
			test(t, w)
		})
	}
}

// need skips a test if this machine or build lacks the world.
func (w world) need(t *testing.T) {
	t.Helper()
	if w.ranks == 0 {
		return
	}
	if !strings.Contains(","+tags()+",", ",mpi,") {
		t.Skip("built without the tag mpi")
	}
	if _, err := exec.LookPath("mpirun"); err != nil {
		t.Skip("mpirun is not installed")
	}
}

// around runs a rank. Its output goes into the files that start names, if any: Open MPI 5.0.7
// forwards parts of standard output as standard error, and the other way round.
const around = `[ -z "$DYNMO_TEST_OUT" ] || exec >>"$DYNMO_TEST_OUT.out" 2>>"$DYNMO_TEST_OUT.err"; exec "$@"`

// command returns the command that runs dynmo in folder dir.
func (w world) command(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	program, err := build()
	expect.OK(t, err)
	line := append([]string{program}, args...)
	if w.ranks > 0 {
		line = append([]string{"mpirun", "-np", strconv.Itoa(w.ranks), "sh", "-c", around, "sh"}, line...)
	}
	return inWorld(t, dir, line...)
}

// inWorld returns a command that may start ranks with mpirun.
func inWorld(t *testing.T, dir string, line ...string) *exec.Cmd {
	return inWorldFor(t, limit, dir, line...)
}

// inWorldFor is inWorld with another time limit.
func inWorldFor(t *testing.T, most time.Duration, dir string, line ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.WaitDelay = 10 * time.Second // ranks that outlive mpirun keep its pipes open
	cmd.Dir = dir
	outside := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SLURM_") }) // of a job that tests
	cmd.Env = append(outside, expect.Launcher()...)
	return cmd
}

// ended is the result of a finished run.
type ended struct {
	status         int
	stdout, stderr string
	took           time.Duration
}

// run runs dynmo to its end.
func (w world) run(t *testing.T, dir string, args ...string) ended {
	t.Helper()
	return finish(t, w.command(t, dir, args...))
}

// finish runs a command to its end.
func finish(t *testing.T, cmd *exec.Cmd) ended {
	t.Helper()
	return start(t, cmd).wait(t)
}

// running is a command that runs.
type running struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	ranks          string // begins the names of the files with the output of ranks under mpirun; "": none
	began          time.Time
}

// start starts a command.
func start(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	r := &running{cmd: cmd, began: time.Now()}
	if cmd.Stdout == nil && cmd.Stderr == nil {
		cmd.Stdout, cmd.Stderr = &r.stdout, &r.stderr
		r.ranks = filepath.Join(t.TempDir(), "ranks")
		cmd.Env = append(cmd.Env, "DYNMO_TEST_OUT="+r.ranks)
	}
	expect.OK(t, cmd.Start())
	return r
}

// wait waits for the command's end. It fails the test if the command must be stopped.
func (r *running) wait(t *testing.T) ended {
	t.Helper()
	err := r.cmd.Wait()
	took := time.Since(r.began)
	out, _ := os.ReadFile(r.ranks + ".out") // there are none without mpirun
	complaints, _ := os.ReadFile(r.ranks + ".err")
	e := ended{r.cmd.ProcessState.ExitCode(), r.stdout.String() + string(out), string(complaints) + r.stderr.String(), took}
	if e.took > limit {
		t.Fatalf("%v: hangs\nstdout: %s\nstderr: %s", r.cmd.Args, e.stdout, e.stderr)
	}
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Errorf("%v: %v", r.cmd.Args, err)
	}
	return e
}

// errors returns dynmo's own error lines, without the launcher's.
func (e ended) errors() []string {
	var lines []string
	for line := range strings.Lines(e.stderr) {
		line = strings.TrimLeft(line, "\x00") // Open MPI 5.0.7 ends its text of MPI_Abort with a zero byte
		if rest, ok := strings.CutPrefix(line, "dynmo: "); ok {
			lines = append(lines, strings.TrimSpace(rest))
		}
	}
	return lines
}

// refused checks that the run ended soon, with the given status and one error that contains all
// texts of want.
func (e ended) refused(t *testing.T, status int, want ...string) {
	t.Helper()
	if e.status != status {
		t.Errorf("status %d, want %d", e.status, status)
	}
	list := e.errors()
	if len(list) != 1 {
		t.Errorf("%d errors, want one", len(list))
	}
	for _, text := range want {
		if len(list) > 0 && !strings.Contains(list[0], text) {
			t.Errorf("the error lacks %q", text)
		}
	}
	if e.stdout != "" {
		t.Errorf("stdout %q", e.stdout)
	}
	if e.took > soon() {
		t.Errorf("took %v", e.took)
	}
	if t.Failed() {
		t.Log(e.stderr)
	}
}

// rankPIDs returns the process id of every rank of an mpirun.
func rankPIDs(t *testing.T, mpirun *exec.Cmd, ranks int) []int {
	t.Helper()
	pids := make([]int, ranks)
	list, err := filepath.Glob("/proc/[0-9]*/environ")
	expect.OK(t, err)
	for _, file := range list {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || parent(pid) != mpirun.Process.Pid {
			continue
		}
		environ, _ := os.ReadFile(file)
		for _, v := range strings.Split(string(environ), "\x00") {
			if text, ok := strings.CutPrefix(v, "OMPI_COMM_WORLD_RANK="); ok {
				rank, err := strconv.Atoi(text)
				if err != nil || rank >= ranks {
					t.Fatalf("process %d: %s", pid, v)
				}
				pids[rank] = pid
			}
		}
	}
	for rank, pid := range pids {
		if pid == 0 {
			t.Fatalf("rank %d is not among the children of mpirun", rank)
		}
	}
	return pids
}

// stat returns the fields of a process's /proc/PID/stat after its name; none if the process is
// gone.
func stat(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
}

// parent returns the parent of a process, 0 if the process is gone.
func parent(pid int) int {
	if f := stat(pid); len(f) > 1 {
		ppid, _ := strconv.Atoi(f[1])
		return ppid
	}
	return 0
}

// gone waits until no process of the list runs; a zombie does not run. It fails the test if a
// process still runs at the time until.
func gone(t *testing.T, pids []int, until time.Time) {
	t.Helper()
	for _, pid := range pids {
		for {
			f := stat(pid)
			if len(f) == 0 || f[0] == "Z" || f[0] == "X" {
				break
			}
			if time.Now().After(until) {
				t.Errorf("process %d still runs", pid)
				_ = syscall.Kill(pid, syscall.SIGKILL)
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}
