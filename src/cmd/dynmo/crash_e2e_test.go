package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"dynmo/src/expect"
	"dynmo/src/fault"
	"dynmo/src/record"
)

// crash is a run in which a rank fails on purpose.
type crash struct {
	id, where string // of the case
	ranks     int
	fault     fault.Fault
	status    func(int) bool
	from      int    // step from which the run resumes; 0: any
	says      string // regular expression for the first line, after the rank's name
	more      []string
}

// isStatus returns a function that reports whether a status is one of want.
func isStatus(want ...int) func(int) bool {
	return func(got int) bool { return slices.Contains(want, got) }
}

// killed accepts the status of mpirun after a rank was killed. Another rank that missed it may have
// ended first.
var killed = isStatus(128+9, exitFailure)

// TestTrainCrashes: a rank ends in one of several ways, and the run ends with it. The first line
// names the rank. The run then resumes to the weights of an undisturbed run.
func TestTrainCrashes(t *testing.T) {
	t.Parallel()
	want := sync.OnceValue(func() string { return undisturbed(t) })
	gone := `, pid \d+\) is gone, in step 11: pipeline`
	for _, c := range []crash{
		{"F01", "kind=kill rank=0", 2, fault.Fault{Kind: fault.Kill, Rank: 0}, killed, 0, gone, nil},
		{"F02", "kind=segv rank=3", 4, fault.Fault{Kind: fault.Segv, Rank: 3}, func(s int) bool { return s > 128 || s == exitFailure }, 0, gone, nil},
		{"F02", "kind=exit rank=1", 3, fault.Fault{Kind: fault.Exit, Rank: 1}, isStatus(3, exitFailure), 0, gone, nil},
		{"F02", "kind=panic rank=2", 4, fault.Fault{Kind: fault.Panic, Rank: 2}, isStatus(exitFailure), 0, `\): step 11: pipeline: panic: fault: DYNMO_FAULT`, nil},
		{"F02", "kind=abort rank=1", 2, fault.Fault{Kind: fault.Abort, Rank: 1}, isStatus(exitFailure), 0, gone, nil},
	} {
		c.fault.Step = 11
		t.Run(c.where, func(t *testing.T) { c.run(t, want()) })
	}
}

// TestTrainCrashesInACheckpoint: a rank is killed in a phase of writing a checkpoint. The run
// resumes from the newest whole checkpoint to the weights of an undisturbed run. DYNMO_LONG=1 kills
// every rank in every phase.
func TestTrainCrashesInACheckpoint(t *testing.T) {
	t.Parallel()
	want := sync.OnceValue(func() string { return undisturbed(t) })
	for i, phase := range fault.Phases() {
		from := 5
		if i >= slices.Index(fault.Phases(), fault.Renamed) {
			from = 10
		}
		for rank := range 4 {
			if rank != i%4 && os.Getenv("DYNMO_LONG") != "1" {
				continue
			}
			c := crash{"F04", fmt.Sprintf("phase=%s rank=%d", phase, rank), 4,
				fault.Fault{Kind: fault.Kill, Step: 10, Phase: phase, Rank: rank}, killed, from, `, pid \d+\) is gone, in step (9: checkpoint|1[01]: )`, nil}
			t.Run(c.where, func(t *testing.T) { c.run(t, want()) })
		}
	}
}

// TestTrainCrashesWithSpreadExperts: replicas share experts out, and the run loses a replica while
// it saves. It resumes from the earlier checkpoint.
func TestTrainCrashesWithSpreadExperts(t *testing.T) {
	t.Parallel()
	more := sets("model.family=llama", "dynamic.kind=moe", "moe.experts=4", "parallel.experts=spread", "parallel.replicas=2", "parallel.stages=2")
	want := finalWeights(t, alone.run(t, folder(t, ""), training(append(more, "--no-run-dir")...)...))
	c := crash{"F04", "phase=write rank=3 experts=spread", 4, fault.Fault{Kind: fault.Kill, Step: 10, Phase: fault.Write, Rank: 3},
		killed, 5, `, pid \d+\) is gone, in step (9: checkpoint|1[01]: )`, more}
	c.run(t, want)
}

// undisturbed returns the final weights of a run without faults.
func undisturbed(t *testing.T) string {
	return finalWeights(t, alone.run(t, folder(t, ""), training("--no-run-dir")...))
}

// run makes the rank fail, and resumes the run in one process. The final weights must be want.
func (c crash) run(t *testing.T, want string) { c.runIn(t, folder(t, ""), want) }

// runIn is run in a folder that may have a run to resume.
func (c crash) runIn(t *testing.T, dir, want string) {
	w := world{c.ranks}
	w.need(t)
	f := expect.NewFault(t, c.id, c.where)
	run := filepath.Join(dir, "run")
	args := training(append(append(saving, append(sets(fmt.Sprintf("parallel.stages=%d", c.ranks)), c.more...)...), "--run-dir", "run", "--resume")...)
	cmd := w.command(t, dir, args...)
	cmd.Env = append(cmd.Env, fault.Variable+"="+c.fault.String())
	e := finish(t, cmd)
	over := nobody(t, dir)
	if !c.status(e.status) || e.took > soon() {
		t.Errorf("status %d after %v", e.status, e.took)
	}
	c.named(t, e)
	if n := strings.Count(e.stderr, "\nto resume: "); n != 1 || !strings.Contains(e.stderr, " train run.toml ") || !strings.Contains(e.stderr, " --run-dir run --resume\n") {
		t.Errorf("%d lines say how to resume, want 1: %s", n, e.stderr)
	}
	file, err := os.Stat(filepath.Join(run, record.MetricsFile))
	expect.OK(t, err)
	f.Detect = over.Sub(file.ModTime())
	recorded := steps(run)

	again := alone.run(t, dir, args...)
	if again.status != exitDone || finalWeights(t, again) != want || strings.Contains(again.stderr, "warning") {
		t.Errorf("status %d, %s, an undisturbed run ends with weights %s: %s", again.status, again.stdout, want, again.stderr)
	}
	from := regexp.MustCompile(`resuming at step (\d+) `).FindStringSubmatch(again.stderr)
	if from == nil || c.from > 0 && from[1] != strconv.Itoa(c.from) {
		t.Fatalf("goes on from %q, want step %d: %s", from, c.from, again.stderr)
	}
	step, err := strconv.Atoi(from[1])
	expect.OK(t, err)
	f.Recover, f.Lost = again.took, max(0, recorded-step)
	metrics(t, run)
	if left, err := filepath.Glob(filepath.Join(run, "ckpt", "*.tmp")); len(left) > 0 || err != nil {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

// named checks that the first line of dynmo's names the rank at fault, its host, the step and the
// event. Only one rank may report it.
func (c crash) named(t *testing.T, e ended) {
	t.Helper()
	host, err := os.Hostname()
	expect.OK(t, err)
	line := regexp.MustCompile(fmt.Sprintf(`^rank %d \(host %s%s`, c.fault.Rank, regexp.QuoteMeta(host), c.says))
	list := slices.DeleteFunc(e.errors(), func(s string) bool { return !strings.HasPrefix(s, "rank ") }) // without the stack of a panic
	if len(list) != 1 || list[0] != e.errors()[0] || !line.MatchString(list[0]) {
		t.Errorf("%q, want one error that matches %v:\n%s", list, line, e.stderr)
	}
}

// nobody waits until no process works in a folder. It returns the time of that.
func nobody(t *testing.T, dir string) time.Time {
	t.Helper()
	until := time.Now().Add(soon())
	for {
		var left []string
		links, err := filepath.Glob("/proc/[0-9]*/cwd")
		expect.OK(t, err)
		for _, link := range links {
			if at, err := os.Readlink(link); err == nil && at == dir {
				left = append(left, filepath.Base(filepath.Dir(link)))
			}
		}
		switch now := time.Now(); {
		case len(left) == 0:
			return now
		case now.After(until):
			t.Fatalf("processes %v are left", left)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestTrainPanics: a panic of a rank that is a goroutine is reported with its stack. It is a
// failure, not bad input, so the status is not the one that Go gives it.
func TestTrainPanics(t *testing.T) {
	t.Parallel()
	expect.NewFault(t, "F02", "kind=panic world=goroutines")
	cmd := alone.command(t, folder(t, ""), training("--run-dir", "run")...)
	cmd.Env = append(cmd.Env, fault.Variable+"=panic@3:2")
	e := finish(t, cmd)
	list := e.errors()
	if e.status != exitFailure || len(list) < 3 || list[0] != "rank 2: step 3: pipeline: panic: fault: DYNMO_FAULT wants this panic" || !strings.HasPrefix(list[1], "goroutine ") {
		t.Errorf("status %d: %s", e.status, e.stderr)
	}
}

// TestTrainRefusesFaults: a fault of a rank that does not exist is refused, once.
func TestTrainRefusesFaults(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w world) {
		dir := folder(t, "")
		cmd := w.command(t, dir, training("--run-dir", "run")...)
		cmd.Env = append(cmd.Env, fault.Variable+"=flood@3:1")
		finish(t, cmd).refused(t, exitUsage, `DYNMO_FAULT=flood@3:1: kind "flood", want one of [kill segv exit panic abort stop hang slow]`)
		if _, err := os.Stat(filepath.Join(dir, "run")); !os.IsNotExist(err) {
			t.Errorf("run directory: %v, want none", err)
		}
	})
}

// TestTrainCrashesEarly: a process that crashes while it reads its input ends by a signal. Go's
// status of a crash is 2, which here means wrong input. The command is plan, because ranks of train
// cannot read settings from a pipe.
func TestTrainCrashesEarly(t *testing.T) {
	t.Parallel()
	program, err := build()
	expect.OK(t, err)
	for name, c := range map[string]struct {
		signal   syscall.Signal
		launcher string
	}{
		"segv alone":    {syscall.SIGSEGV, ""},
		"segv mpirun":   {syscall.SIGSEGV, "mpirun -np 1 "},
		"panic alone":   {syscall.SIGQUIT, ""}, // ends like a panic of a goroutine
		"killed mpirun": {syscall.SIGKILL, "mpirun -np 1 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.launcher != "" {
				four.need(t)
			}
			expect.NewFault(t, "F02", "early "+name)
			dir := folder(t, "")
			pipe := filepath.Join(dir, "pipe")
			expect.OK(t, syscall.Mkfifo(pipe, 0o600))
			// mpirun's own child is the shell, which is replaced by dynmo.
			cmd := inWorld(t, dir, "sh", "-c", fmt.Sprintf("%ssh -c 'echo $$ >pid; exec %s plan run.toml --costs - <pipe'; exit $?", c.launcher, program))
			r := start(t, cmd)
			costs, err := os.OpenFile(pipe, os.O_WRONLY, 0)
			expect.OK(t, err)
			defer costs.Close()
			_, err = costs.WriteString(strings.Repeat(" ", 100_000)) // more than a pipe buffers, so dynmo is reading
			expect.OK(t, err)
			text, err := os.ReadFile(filepath.Join(dir, "pid"))
			expect.OK(t, err)
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			expect.OK(t, err)
			expect.OK(t, syscall.Kill(pid, c.signal))
			if e := r.wait(t); e.status <= 128 {
				t.Errorf("status %d, want a signal's: %s", e.status, e.stderr)
			}
			nobody(t, dir)
		})
	}
}
