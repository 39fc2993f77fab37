package record

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dynmo/src/expect"
)

// leave makes a lock file that names a process, as one that was killed leaves it.
func leave(t *testing.T, dir string, h holder) {
	t.Helper()
	text, err := json.Marshal(h)
	expect.OK(t, err)
	expect.OK(t, os.WriteFile(filepath.Join(dir, lockFile), text, 0o666))
}

// TestASecondRunInTheSameDirectory: while a run writes into a directory, no other opens
// it, by whatever way; afterwards one does. The error names who holds it.
func TestASecondRunInTheSameDirectory(t *testing.T) {
	t.Setenv("SLURM_JOB_ID", "4711")
	dir := filepath.Join(t.TempDir(), "run")
	first, err := Open(dir, "# first", Provenance{})
	expect.OK(t, err)
	host, err := os.Hostname()
	expect.OK(t, err)
	open := map[string]func() (*Run, error){
		"Open":    func() (*Run, error) { return Open(dir, "", Provenance{}) },
		"Replace": func() (*Run, error) { return Replace(dir, "", Provenance{}) },
		"Resume":  func() (*Run, error) { r, _, err := Resume(dir, "", Provenance{}, From{}); return r, err },
	}
	for name, open := range open {
		_, err := open()
		if err == nil || !strings.HasPrefix(err.Error(), "record: run directory "+dir+": job 4711, process ") || !strings.Contains(err.Error(), " on host "+host+", since ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	expect.OK(t, first.Step(Metrics{}))
	expect.OK(t, first.CloseFiles())
	if _, err := open["Resume"](); err == nil {
		t.Error("resumed before the first run gave the directory up")
	}
	expect.OK(t, first.Close())
	if n := len(lines(t, filepath.Join(dir, MetricsFile))); n != 1 {
		t.Errorf("%d steps", n)
	}
	r, err := open["Resume"]()
	expect.OK(t, err)
	expect.OK(t, r.Close())
	if _, err := os.Stat(filepath.Join(dir, lockFile)); !os.IsNotExist(err) {
		t.Errorf("a lock is left: %v", err)
	}
}

// squeue puts a program of that name in front of PATH, which prints a text and ends with
// a status.
func squeue(t *testing.T, says, status string) {
	t.Helper()
	bin := t.TempDir()
	script := "#!/bin/sh\n[ \"$1 $2 $3\" = '--noheader --jobs=12 --format=%T' ] || exit 9\necho '" + says + "'\nexit " + status + "\n"
	expect.OK(t, os.WriteFile(filepath.Join(bin, "squeue"), []byte(script), 0o777))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

// A lock is taken over where its process is surely gone, and else respected.
func TestStaleLock(t *testing.T) {
	host, err := os.Hostname()
	expect.OK(t, err)
	since := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name          string
		was           holder
		job, restart  string // of this process
		says, squeued string // of squeue and its status; "" where there is none
		want          string // of the error; "" takes the lock over
	}{
		{"gone from this host", holder{Host: host, PID: 1 << 22}, "", "", "", "", ""},
		{"gone, its number taken by another", holder{Host: host, PID: os.Getpid()}, "", "", "", "", ""},
		{"empty", holder{}, "", "", "", "", ""},
		{"another host", holder{Host: "far", PID: 7, Since: since}, "", "", "", "",
			"process 7 on host far, since 2026-11-22T09:00:00Z writes into it: wait for its end or stop it; if it is gone, remove "},
		{"the same job, requeued", holder{Job: "12", Host: "far", PID: 7}, "12", "1", "", "", ""},
		{"the same job, its next step", holder{Job: "12", Step: -1, Host: "far", PID: 7}, "12", "", "", "", ""},
		{"the same step", holder{Job: "12", Host: "far", PID: 7, Since: since}, "12", "", "", "", "job 12, process 7 on host far"},
		{"another job that runs", holder{Job: "12", Host: "far", PID: 7}, "13", "", "RUNNING", "0", "job 12, process 7 on host far"},
		{"another job that waits", holder{Job: "12", Host: "far", PID: 7}, "13", "", "PENDING", "0", ""},
		{"another job that is over", holder{Job: "12", Host: "far", PID: 7}, "13", "", "", "0", ""},
		{"another job, long ago", holder{Job: "12", Host: "far", PID: 7}, "", "", "slurm_load_jobs error: Invalid job id specified", "1", ""},
		{"Slurm does not answer", holder{Job: "12", Host: "far", PID: 7}, "", "", "Unable to contact slurm controller", "1", "job 12, process 7 on host far"},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect.NewFault(t, "F07", "")
			t.Setenv("SLURM_JOB_ID", c.job)
			t.Setenv("SLURM_RESTART_COUNT", c.restart)
			t.Setenv("SLURM_STEP_ID", "")
			if c.squeued != "" {
				squeue(t, c.says, c.squeued)
			}
			dir := t.TempDir()
			if leave(t, dir, c.was); c.name == "empty" {
				expect.OK(t, os.Truncate(filepath.Join(dir, lockFile), 0))
			}
			l, err := takeLock(dir)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("got %v, want %s", err, c.want)
				}
				return
			}
			expect.OK(t, err)
			if h := l.holder(); h.PID != os.Getpid() || h.Host != host || h.Job != c.job {
				t.Errorf("the lock names %v", h)
			}
			expect.OK(t, l.release())
		})
	}
}

// A lock of a live process is respected even if its file names another host. Here a process of this
// test has the lock.
func TestLockOfALivingProcess(t *testing.T) {
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("no flock command")
	}
	dir := t.TempDir()
	leave(t, dir, holder{Host: "elsewhere", PID: 7})
	path := filepath.Join(dir, lockFile)
	c := exec.Command("flock", path, "cat")
	in, err := c.StdinPipe()
	expect.OK(t, err)
	expect.OK(t, c.Start())
	defer func() { _ = in.Close(); _ = c.Wait() }()
	for held := false; !held; time.Sleep(time.Millisecond) {
		f, err := os.Open(path)
		expect.OK(t, err)
		held = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
		expect.OK(t, f.Close())
	}
	if _, err := takeLock(dir); err == nil || !strings.Contains(err.Error(), "process 7 on host elsewhere") {
		t.Errorf("got %v", err)
	}
}
