package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// inShell returns a run of goroutines started by shell commands, which end in "$@".
func inShell(t *testing.T, dir, shell string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := alone.command(t, dir, training(args...)...)
	return inWorld(t, dir, append([]string{"sh", "-c", shell, "sh"}, cmd.Args...)...)
}

// TestTrainMakesRunDirectory: an unnamed run directory is created, reported in the first and the
// last line, and follows the umask.
func TestTrainMakesRunDirectory(t *testing.T) {
	dir := folder(t, "")
	e := finish(t, inShell(t, dir, `umask 027; exec "$@"`, sets("run.name=a b")...))
	lines := strings.Split(strings.TrimSpace(e.stderr), "\n")
	first := regexp.MustCompile(`^run directory (runs/a-b-\d{8}-\d{6})$`).FindStringSubmatch(lines[0])
	if e.status != exitDone || first == nil {
		t.Fatalf("status %d: %s", e.status, e.stderr)
	}
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "run directory "+first[1]+": 12 steps in ") {
		t.Errorf("last line %q", last)
	}
	if n := len(metrics(t, filepath.Join(dir, first[1]))); n != 12 {
		t.Errorf("%d steps", n)
	}
	for path, want := range map[string]fs.FileMode{"runs": 0o750, first[1]: 0o750, first[1] + "/metrics.jsonl": 0o640} {
		info, err := os.Stat(filepath.Join(dir, path))
		expect.OK(t, err)
		if info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, want %v", path, info.Mode().Perm(), want)
		}
	}
}

// TestTrainRunDirectoryFlags: flags choose whether and where records are kept, and which run they
// replace.
func TestTrainRunDirectoryFlags(t *testing.T) {
	dir := folder(t, "")
	quick := sets("train.steps=1", "train.hash=false")
	for _, c := range []struct {
		args []string
		dirs []string // afterwards, below dir
		want string   // part of the error, if any
	}{
		{[]string{"--no-run-dir"}, nil, ""},
		{[]string{"--run-dir", ""}, nil, ""},
		{[]string{"--run-dir", "a", "--no-run-dir"}, nil, "--run-dir a and --no-run-dir: want one of them"},
		{[]string{"--run-dir", "a"}, []string{"a"}, ""},
		{[]string{"--run-dir", "a"}, []string{"a"}, "run directory a: a run already lies there (metrics.jsonl exists): --resume goes on with it, --force writes over it"},
		{[]string{"--run-dir", "a", "--force"}, []string{"a"}, ""},
		{[]string{"--run-dir", "b/c", "--force"}, []string{"a", "b"}, ""},
	} {
		e := alone.run(t, dir, training(append(c.args, quick...)...)...)
		if c.want != "" {
			e.refused(t, exitUsage, c.want)
		} else if e.status != exitDone {
			t.Errorf("%v: status %d: %s", c.args, e.status, e.stderr)
		}
		var dirs []string
		list, err := os.ReadDir(dir)
		expect.OK(t, err)
		for _, f := range list {
			if f.IsDir() {
				dirs = append(dirs, f.Name())
			}
		}
		if strings.Join(dirs, " ") != strings.Join(c.dirs, " ") {
			t.Errorf("%v: directories %v, want %v", c.args, dirs, c.dirs)
		}
	}
}

// TestTrainLosesRunDirectory: a run that loses its directory ends with one error.
func TestTrainLosesRunDirectory(t *testing.T) {
	dir := folder(t, "")
	r := start(t, alone.command(t, dir, training(append(endless, "--run-dir", "run")...)...))
	r.reach(t, filepath.Join(dir, "run"), 1)
	expect.OK(t, os.RemoveAll(filepath.Join(dir, "run")))
	r.wait(t).refused(t, exitFailure, "rank 0: step ", "record: run directory run is lost: stat run/metrics.jsonl: no such file or directory")
}

// TestTrainOutputLost: an answer that is lost on a full device is an error. A lost log is none.
func TestTrainOutputLost(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full on this system")
	}
	dir := folder(t, "")
	for _, c := range []struct {
		shell  string
		status int
		want   string
	}{
		{`"$@" >/dev/full`, exitFailure, "dynmo: output: write /dev/stdout: no space left on device\n"},
		{`"$@" 2>/dev/full`, exitDone, ""},
	} {
		e := finish(t, inShell(t, dir, c.shell, append(sets("train.steps=1"), "--no-run-dir")...))
		if e.status != c.status || !strings.HasSuffix(e.stderr, c.want) {
			t.Errorf("%s: status %d: %s", c.shell, e.status, e.stderr)
		}
	}
}

// TestOutputLost: every command reports lost output, because all share one writer.
func TestOutputLost(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full on this system")
	}
	defer full.Close()
	loads := filepath.Join(t.TempDir(), "loads.json")
	write(t, loads, `{"seconds":[1,2,3]}`)
	for _, line := range []string{"--version", "--help", "help config", "completion bash", "train --help", "balance --stages 2 --loads " + loads} {
		var stderr bytes.Buffer
		if status := execute(rootCommand(), strings.Fields(line), full, &stderr); status != exitFailure || !strings.HasSuffix(stderr.String(), "write /dev/full: no space left on device\n") {
			t.Errorf("%s: status %d: %s", line, status, &stderr)
		}
	}
}
