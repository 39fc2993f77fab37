package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dynmo/src/expect"
	"dynmo/src/record"
)

// endless trains until it is stopped.
var endless = sets("train.steps=1000000", "train.log_every=1000000")

// steps returns how many steps a run has recorded.
func steps(run string) int {
	text, _ := os.ReadFile(filepath.Join(run, record.MetricsFile))
	return strings.Count(string(text), "\n")
}

// reach waits until a run has recorded n steps.
func (r *running) reach(t *testing.T, run string, n int) {
	t.Helper()
	for steps(run) < n {
		if time.Since(r.began) > limit/2 {
			_ = r.cmd.Process.Kill()
			e := r.wait(t)
			t.Fatalf("only %d steps of %d in %v: %s", steps(run), n, limit/2, e.stderr)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestTrainKilledRank is law 8: a rank that is killed in mid-step ends the run. One of the other
// ranks reports it once, with rank, host, step and phase. With DYNMO_LONG=1 there are 20 moments.
func TestTrainKilledRank(t *testing.T) {
	four.need(t)
	seeds := 1
	if os.Getenv("DYNMO_LONG") == "1" {
		seeds = 20
	}
	for seed := range seeds {
		for _, c := range []struct {
			stages, victim int
			set            []string
		}{{4, 0, nil}, {4, 1, nil}, {4, 3, nil}, {2, 2, exchanging}} {
			t.Run(fmt.Sprintf("stages=%d/rank=%d/seed=%d", c.stages, c.victim, seed), func(t *testing.T) {
				killRank(t, four.command, c.stages, c.victim, rand.New(rand.NewPCG(uint64(seed), uint64(c.victim))), c.set...)
			})
		}
	}
}

// exchanging are settings with which replicas exchange tokens in most passes.
var exchanging = []string{"model.family=llama", "dynamic.kind=moe", "moe.experts=4", "parallel.experts=spread"}

// killRank kills a rank within a step. command starts four ranks, with the given number of stages.
// set are more settings.
func killRank(t *testing.T, command func(t *testing.T, dir string, args ...string) *exec.Cmd, stages, victim int, draw *rand.Rand, set ...string) {
	f := expect.NewFault(t, "F01", fmt.Sprintf("stages=%d rank=%d", stages, victim))
	dir := folder(t, "")
	run := filepath.Join(dir, "run")
	// Steps take tenths of a second, most of it in the pipeline.
	long := sets("model.hidden=128", "model.sequence=64", fmt.Sprintf("parallel.microbatches=%d", 4*stages),
		fmt.Sprintf("parallel.stages=%d", stages), fmt.Sprintf("parallel.replicas=%d", 4/stages))
	r := start(t, command(t, dir, training(slices.Concat(long, endless, sets(set...), []string{"--run-dir", "run"})...)...))
	r.reach(t, run, 1)
	began := time.Now()
	r.reach(t, run, 2)
	step := time.Since(began)
	pids := rankPIDs(t, r.cmd, 4)
	time.Sleep(time.Duration(draw.Float64() * float64(step)))
	killed := time.Now()
	expect.OK(t, syscall.Kill(pids[victim], syscall.SIGKILL))
	e := r.wait(t)
	mayTake := 10*time.Second + max(5*time.Second, 2*step)
	gone(t, append(pids, r.cmd.Process.Pid), killed.Add(mayTake))
	f.Detect = time.Since(killed)
	if took := time.Since(killed); took > mayTake {
		t.Errorf("took %v, with steps of %v", took, step)
	}
	if e.status == exitDone {
		t.Error("status 0")
	}
	e.oneCause(t, victim, pids[victim], `gone, in step \d+: (dynamic|pipeline|update|profile|balance|migrate|record)\b.*; rank \d was in step \d+: `)
	metrics(t, run)
	t.Logf("steps of %v; ended %v after the kill, status %d", step.Round(time.Millisecond), time.Since(killed).Round(time.Millisecond), e.status)
}

// oneCause checks that dynmo reports once why a run ended, and begins with the rank at fault. what
// is a regular expression.
func (e ended) oneCause(t *testing.T, rank, pid int, what string) {
	t.Helper()
	host, err := os.Hostname()
	expect.OK(t, err)
	line := regexp.MustCompile(fmt.Sprintf(`^rank %d \(host %s, pid %d\) is %s`, rank, regexp.QuoteMeta(host), pid, what))
	if list := e.errors(); len(list) != 1 || !line.MatchString(list[0]) {
		t.Errorf("%q, want one error that matches %v:\n%s", list, line, e.stderr)
	}
}

// TestTrainStoppedRank: a stopped rank ends the run. Another rank reports the last activity of each
// rank: here rank 0, which watches the others while it runs.
func TestTrainStoppedRank(t *testing.T) {
	four.need(t)
	f := expect.NewFault(t, "F03", "kind=stop rank=0")
	dir := folder(t, "")
	run := filepath.Join(dir, "run")
	r := start(t, four.command(t, dir, training(append(endless, "--set", "comm.stall_seconds=1", "--run-dir", "run")...)...))
	r.reach(t, run, 3)
	pids := rankPIDs(t, r.cmd, 4)
	expect.OK(t, syscall.Kill(pids[0], syscall.SIGSTOP))
	stopped := time.Now()
	e := r.wait(t)
	gone(t, pids, time.Now().Add(5*time.Second))
	f.Detect = time.Since(stopped)
	if took := time.Since(stopped); took < time.Second || took > soon() || e.status != exitFailure {
		t.Errorf("status %d after %v", e.status, took)
	}
	list := e.errors()
	cause := fmt.Sprintf("): no rank of this host got on for 1s: rank 0 (pid %d) is stopped", pids[0])
	if len(list) != 5 || !strings.Contains(list[0], cause) {
		t.Fatalf("%q, want %q and a line for each rank:\n%s", list, cause, e.stderr)
	}
	for rank, line := range list[1:] {
		if want := fmt.Sprintf("rank %d (pid %d): step ", rank, pids[rank]); !strings.HasPrefix(line, want) {
			t.Errorf("%q, want %q", line, want)
		}
	}
	metrics(t, run)
}

// TestTrainSuspended: a run whose ranks were all stopped for longer than any wait may last, as in a
// suspended job, goes on once they are continued.
func TestTrainSuspended(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w world) {
		dir := folder(t, "")
		run := filepath.Join(dir, "run")
		r := start(t, w.command(t, dir, training(append(endless, "--set", "comm.stall_seconds=4", "--run-dir", "run")...)...))
		r.reach(t, run, 3)
		pids := []int{r.cmd.Process.Pid}
		if w == four {
			pids = rankPIDs(t, r.cmd, 4)
		}
		for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
			for _, pid := range pids {
				expect.OK(t, syscall.Kill(pid, signal))
			}
			if signal == syscall.SIGSTOP {
				time.Sleep(12 * time.Second)
			}
		}
		r.reach(t, run, len(metrics(t, run))+3)
		expect.OK(t, syscall.Kill(pids[0], syscall.SIGTERM))
		if e := r.wait(t); e.status != exitStopped {
			t.Errorf("status %d: %s", e.status, e.stderr)
		}
	})
}

// TestTrainStops: a run that is asked to stop ends after the step, with a checkpoint and complete
// records. mpirun forwards SIGUSR2.
func TestTrainStops(t *testing.T) {
	resumes := regexp.MustCompile(`\nto resume: cd \S+ && (env OMPI_\S+ OMPI_\S+ )?(mpirun -np 4 sh -c .* sh )?\S+ train run\.toml .* --run-dir run --resume\n`)
	for _, c := range []struct {
		name   string
		w      world
		rank   int // receives the signal; -1: the command does
		signal syscall.Signal
		status int
		cause  string
	}{
		{"goroutines", alone, -1, syscall.SIGTERM, exitStopped, "stopped by signal: terminated"},
		{"goroutines, Ctrl-C", alone, -1, syscall.SIGINT, exitStopped, "stopped by signal: interrupt"},
		{"goroutines, the terminal closes", alone, -1, syscall.SIGHUP, exitStopped, "stopped by signal: hangup"},
		{"mpirun", four, -1, syscall.SIGUSR2, exitStopped, "stopped by signal: user defined signal 2"},
		{"rank 0", four, 0, syscall.SIGTERM, exitStopped, "stopped by signal: terminated"},
		{"rank 2", four, 2, syscall.SIGTERM, exitStopped, "stopped by a signal to another rank"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.w.need(t)
			if c.signal == syscall.SIGHUP && signal.Ignored(syscall.SIGHUP) {
				t.Skip("this test runs under nohup")
			}
			f := expect.NewFault(t, "F12", "")
			dir := folder(t, "")
			run := filepath.Join(dir, "run")
			r := start(t, c.w.command(t, dir, training(append(endless, "--run-dir", "run")...)...))
			r.reach(t, run, 3)
			pid := r.cmd.Process.Pid
			var pids []int
			if c.w == four {
				pids = rankPIDs(t, r.cmd, 4)
			}
			if c.rank >= 0 {
				pid = pids[c.rank]
			}
			signalled := time.Now()
			expect.OK(t, syscall.Kill(pid, c.signal))
			e := r.wait(t)
			gone(t, pids, time.Now().Add(5*time.Second))
			f.Detect = time.Since(signalled)
			list := metrics(t, run)
			if e.status != c.status {
				t.Errorf("status %d, want %d", e.status, c.status)
			}
			if want := fmt.Sprintf("dynmo: %s after %d of 1000000 steps; their checkpoint is saved\n", c.cause, len(list)); !strings.Contains(e.stderr, want) || len(e.errors()) != 1 {
				t.Errorf("want %q, got %s", want, e.stderr)
			}
			if n := strings.Count(e.stderr, unix.SignalName(c.signal)+": the run ends after this step, with a checkpoint"); n != map[bool]int{true: 1}[c.rank <= 0] {
				t.Errorf("%d lines of the signal: %s", n, e.stderr)
			}
			if c.status == exitStopped && !resumes.MatchString(e.stderr) {
				t.Errorf("no command that resumes the run in %s", e.stderr)
			}
			finalWeights(t, e)
			if want := fmt.Sprintf("%d steps, ", len(list)); !strings.HasPrefix(e.stdout, want) {
				t.Errorf("want %q, got %s", want, e.stdout)
			}
		})
	}
}

// TestTrainMpirunTerminated: SIGTERM ends mpirun and all ranks. How long mpirun lets the ranks write
// a checkpoint depends on its version, and version 6 kills them at once. Their records are whole.
func TestTrainMpirunTerminated(t *testing.T) {
	four.need(t)
	f := expect.NewFault(t, "F12", "")
	dir := folder(t, "")
	run := filepath.Join(dir, "run")
	r := start(t, four.command(t, dir, training(append(endless, "--run-dir", "run")...)...))
	r.reach(t, run, 3)
	pids := rankPIDs(t, r.cmd, 4)
	signalled := time.Now()
	expect.OK(t, r.cmd.Process.Signal(syscall.SIGTERM))
	e := r.wait(t)
	gone(t, pids, time.Now().Add(5*time.Second))
	f.Detect = time.Since(signalled)
	if e.status == exitDone {
		t.Errorf("status 0: %s", e.stderr)
	}
	n := len(metrics(t, run))
	e = four.run(t, dir, training("--set", fmt.Sprintf("train.steps=%d", n+5), "--run-dir", "run", "--resume")...)
	if e.status != exitDone {
		t.Errorf("resumed: status %d: %s", e.status, e.stderr)
	}
}

// TestTrainUnheard: if nobody reads the program's output, the program still ends. Its records do
// not contain the output.
func TestTrainUnheard(t *testing.T) {
	t.Run("closed", func(t *testing.T) {
		expect.NewFault(t, "F26", "")
		dir := folder(t, "")
		cmd := alone.command(t, dir, training("--run-dir", "run")...)
		e := finish(t, inWorld(t, dir, append([]string{"sh", "-c", `exec "$@" >&- 2>&-`, "sh"}, cmd.Args...)...))
		if n := len(metrics(t, filepath.Join(dir, "run"))); e.status != exitDone || n != 12 {
			t.Errorf("status %d, %d steps", e.status, n)
		}
	})
	each(t, func(t *testing.T, w world) {
		expect.NewFault(t, "F26", "")
		dir := folder(t, "")
		cmd := w.command(t, dir, training("--run-dir", "run", "--set", "train.log_every=1")...)
		reader, writer, err := os.Pipe()
		expect.OK(t, err)
		cmd.Stdout, cmd.Stderr = writer, writer
		r := start(t, cmd)
		writer.Close()
		r.reach(t, filepath.Join(dir, "run"), 1)
		var pids []int
		if w == four {
			pids = rankPIDs(t, r.cmd, 4)
		}
		reader.Close()
		if e := r.wait(t); w == alone && e.status != exitDone { // mpirun itself ends of SIGPIPE
			t.Errorf("status %d", e.status)
		}
		gone(t, pids, time.Now().Add(10*time.Second))
		metrics(t, filepath.Join(dir, "run"))
	})
}

// TestTrainDiskFull: files that cannot grow end no run. 64 KiB are not enough for
// the records. The log says what is missing, and the records that are there can be read.
func TestTrainDiskFull(t *testing.T) {
	expect.NewFault(t, "F05", "")
	dir := folder(t, "")
	cmd := alone.command(t, dir, training(append(sets("train.steps=200", "checkpoint.every=never"), "--run-dir", "run")...)...)
	line := append([]string{"sh", "-c", `ulimit -f 128; exec "$@"`, "sh"}, cmd.Args...)
	e := finish(t, inWorld(t, dir, line...))
	if want := "warning: records: metrics.jsonl lacks "; e.status != exitDone || strings.Count(e.stderr, want) != 1 || strings.Count(e.stderr, "records are kept in memory") != 1 {
		t.Errorf("status %d, want %q once: %s", e.status, want, e.stderr)
	}
	if n := len(metrics(t, filepath.Join(dir, "run"))); n == 0 || n == 200 {
		t.Errorf("%d of 200 steps are recorded", n)
	}
}

// TestTrainKeepsProtected: an old checkpoint that is protected against writing stays, with one
// warning, and the run goes on.
func TestTrainKeepsProtected(t *testing.T) {
	t.Parallel()
	dir := folder(t, "")
	old := filepath.Join(dir, "run", "ckpt", "step_00000001")
	train := func(steps string) ended {
		cmd := alone.command(t, dir, training(append(sets("checkpoint.every=1", "train.steps="+steps), "--run-dir", "run", "--resume")...)...)
		if os.Geteuid() == 0 { // root may remove anything
			for _, parent := range []string{filepath.Dir(dir), filepath.Dir(cmd.Path)} {
				expect.OK(t, os.Chmod(parent, 0o755))
			}
			const nobody = 65534
			expect.OK(t, os.Chmod(filepath.Join(dir, "text.txt"), 0o644))
			expect.OK(t, os.Chmod(filepath.Join(dir, "run.toml"), 0o644))
			expect.OK(t, os.Chown(dir, nobody, nobody))
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		return finish(t, cmd)
	}
	if e := train("1"); e.status != exitDone {
		t.Fatalf("status %d: %s", e.status, e.stderr)
	}
	expect.OK(t, os.Chmod(old, 0o555))
	defer os.Chmod(old, 0o755)
	e := train("9")
	if want := "warning: old checkpoint run/ckpt/step_00000001 cannot be removed and stays: permission denied (chmod u+w run/ckpt/step_00000001 lets a later checkpoint remove it)"; e.status != exitDone || strings.Count(e.stderr, want) != 1 {
		t.Errorf("status %d, want %q once: %s", e.status, want, e.stderr)
	}
	if _, err := os.Stat(filepath.Join(old, "manifest.json")); err != nil {
		t.Error(err)
	}
}

// TestTrainUnsaved: after three failed checkpoints in a row the run ends with a status for that. It has
// no checkpoint, so no line says how to resume.
func TestTrainUnsaved(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w world) {
		expect.NewFault(t, "F05", "")
		dir := folder(t, "")
		expect.OK(t, os.Mkdir(filepath.Join(dir, "run"), 0o700))
		expect.OK(t, os.Symlink("nowhere", filepath.Join(dir, "run", "ckpt")))
		e := w.run(t, dir, training(append(sets("checkpoint.every=1", "train.steps=100"), "--run-dir", "run", "--resume")...)...)
		e.refused(t, exitUnsaved, "checkpoint: 3 in a row failed: ", "ckpt", ": the run has no checkpoint: start it again once one can be written")
		if strings.Contains(e.stderr, "\nto resume: ") || strings.Contains(e.stderr, "resume from") {
			t.Errorf("there is nothing to resume: %s", e.stderr)
		}
		if n := strings.Count(e.stderr, "warning: no checkpoint after "); n != 2 {
			t.Errorf("%d warnings, want 2: %s", n, e.stderr)
		}
	})
}
