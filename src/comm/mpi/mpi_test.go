//go:build mpi

package mpi

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dynmo/src/comm/commtest"
	"dynmo/src/expect"
)

// mpirun returns a command that runs this test binary as ranks with a role.
// It ends after a minute (ten with DYNMO_LONG=1), whatever hangs.
func mpirun(t testing.TB, ranks int, role string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("mpirun is not installed")
	}
	self, err := os.Executable()
	expect.OK(t, err)
	limit := time.Minute
	if os.Getenv("DYNMO_LONG") == "1" {
		limit = 10 * time.Minute
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, "-np", fmt.Sprint(ranks), self)
	cmd.Env = append(append(os.Environ(), expect.Launcher()...), roleVariable+"="+role)
	return cmd
}

func TestSuite(t *testing.T) {
	for _, ranks := range []int{1, 3, 4} {
		t.Run(fmt.Sprintf("n=%d", ranks), func(t *testing.T) {
			out, err := mpirun(t, ranks, "suite").CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, c := range commtest.Cases() {
				if !strings.Contains(string(out), "passed "+c.Name+"\n") {
					t.Errorf("%s did not run\n%s", c.Name, out)
				}
			}
		})
	}
}

func TestRoles(t *testing.T) {
	for _, role := range []string{"faults", "disagree", "leave"} {
		t.Run(role, func(t *testing.T) {
			if out, err := mpirun(t, 3, role).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// A step of several tasks in which MPI finds only itself (srun without PMIx)
// ends within 5 s with the remedy.
func TestStartAlone(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=suite", "SLURM_STEP_NUM_TASKS=4")
	start := time.Now()
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "SLURM_STEP_NUM_TASKS=4") {
		t.Errorf("%v\n%s", err, out)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

// Law 8: a rank killed in mid-message ends the run within 10 s, and the
// survivors say whom they missed.
func TestKilledRank(t *testing.T) {
	const ranks, victim = 4, 2
	cmd := mpirun(t, ranks, "ring")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	expect.OK(t, err)
	expect.OK(t, cmd.Start())
	pids := map[int]int{}
	for lines := bufio.NewScanner(stdout); len(pids) < ranks && lines.Scan(); {
		var rank, pid int
		if _, err := fmt.Sscanf(lines.Text(), "rank %d pid %d", &rank, &pid); err == nil {
			pids[rank] = pid
		}
	}
	if len(pids) < ranks {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("%d ranks of %d began\n%s", len(pids), ranks, stderr.String())
	}
	time.Sleep(300 * time.Millisecond) // into the messages
	killed := time.Now()
	expect.OK(t, unix.Kill(pids[victim], unix.SIGKILL))
	if err := cmd.Wait(); err == nil {
		t.Error("mpirun reports success")
	}
	took := time.Since(killed)
	if took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	for rank, pid := range pids {
		for runs(pid) && time.Since(killed) < 10*time.Second {
			time.Sleep(10 * time.Millisecond)
		}
		if runs(pid) {
			t.Errorf("rank %d (pid %d) still runs", rank, pid)
		}
	}
	want := fmt.Sprintf("rank %d (host ", victim)
	if text := stderr.String(); !strings.Contains(text, want) || !strings.Contains(text, "gone") {
		t.Errorf("nobody says that rank %d is gone:\n%s", victim, text)
	} else {
		t.Logf("ended %v after the kill:\n%s", took.Round(time.Millisecond), text)
	}
}

// runs reports whether a process runs: it exists, and is not a zombie that
// waits for init.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
