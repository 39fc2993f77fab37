package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"dynmo/src/checkpoint"
	"dynmo/src/expect"
	"dynmo/src/record"
)

// saving are settings of a run that keeps a checkpoint after every fifth step.
var saving = sets("checkpoint.every=5", "checkpoint.keep=10")

// interrupted makes a run of 12 steps in dir/run that looks killed after its records were written.
// Its newest checkpoint is that of step 10.
func interrupted(t *testing.T, dir string) {
	t.Helper()
	if e := alone.run(t, dir, training(append(saving, "--run-dir", "run", "--resume")...)...); e.status != exitDone {
		t.Fatalf("status %d: %s", e.status, e.stderr)
	}
	expect.OK(t, os.RemoveAll(filepath.Join(dir, "run", "ckpt", "step_00000012")))
}

// anew is the beginning of the line that explains why a run resumes without its earlier
// measurements.
const anew = "note: measurements and the balancer begin anew: "

// losses returns the losses and norms of a run's steps.
func losses(t *testing.T, run string) string {
	t.Helper()
	found := regexp.MustCompile(`"step":\d+|"loss":[^,]+,"grad_norm":[^,]+,"lr":[^,]+`).FindAllString(read(t, filepath.Join(run, record.MetricsFile)), -1)
	return strings.Join(found, "\n")
}

// One command line starts a run and resumes it: losses and weights are those of a run without
// interruption, on as many stages and on others. To all readers its directory is one run.
func TestTrainResumes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		w    world
		more []string
		says []string
	}{
		{"as before", alone, nil, nil},
		{"two stages", alone, sets("parallel.stages=2"), []string{"note: parallel.stages: 4 in the checkpoint, 2 here\n", anew + "[parallel] of the checkpoint differs\n"}},
		{"processes", four, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.w.need(t)
			expect.NewFault(t, "F22", "")
			t.Parallel()
			dir := folder(t, "")
			interrupted(t, dir)
			run := filepath.Join(dir, "run")
			want := losses(t, run)
			e := c.w.run(t, dir, training(append(append(saving, c.more...), "--run-dir", "run", "--resume")...)...)
			if e.status != exitDone || len(e.errors()) > 0 {
				t.Fatalf("status %d: %s", e.status, e.stderr)
			}
			for _, text := range append(c.says, "resuming at step 10 from run/ckpt/step_00000010 (restart 1)\n", " lines of steps that are run again were cut off\n", "run directory run: steps 10 to 11 in ") {
				if !strings.Contains(e.stderr, text) {
					t.Errorf("want %q, got %s", text, e.stderr)
				}
			}
			if c.more == nil && strings.Contains(e.stderr, anew) {
				t.Errorf("goes on as it was, and says %s", e.stderr)
			}
			if got := losses(t, run); got != want {
				t.Errorf("losses\n%s\nwant\n%s", got, want)
			}
			undisturbed := alone.run(t, dir, training("--no-run-dir")...)
			if finalWeights(t, e) != finalWeights(t, undisturbed) {
				t.Errorf("ends with %s, a run without an end in between with %s", e.stdout, undisturbed.stdout)
			}
			metrics(t, run) // whole lines, of steps in order
			if got := said(t, "table", run); !strings.Contains(got, e.stdout[strings.Index(e.stdout, "loss ")+5:strings.LastIndex(e.stdout, ",")]) {
				t.Errorf("table %s, of a run that ended with %s", got, e.stdout)
			}
			page := said(t, "report", run, "-o", "-")
			if want := "(restart 1) from run/ckpt/step_00000010."; !strings.Contains(page, want) || strings.Contains(page, "This run is unfinished") {
				t.Errorf("the page lacks %q", want)
			}
		})
	}
}

// TestTrainResumesTheNewest: without --run-dir the newest run of the name with a checkpoint is
// resumed, and the run names it. If there is no such run, or no checkpoint, a new run begins.
func TestTrainResumesTheNewest(t *testing.T) {
	t.Parallel()
	dir := folder(t, "")
	resume := training(append(sets("train.steps=2", "run.name=a", "checkpoint.every=end"), "--resume")...)
	first := alone.run(t, dir, resume...)
	if want := "nothing to resume: no run of its name in runs has a checkpoint, the run begins at step 0\n"; first.status != exitDone || !strings.Contains(first.stderr, want) {
		t.Fatalf("status %d, want %q: %s", first.status, want, first.stderr)
	}
	run := regexp.MustCompile(`runs/a-[0-9-]+`).FindString(first.stderr)
	again := alone.run(t, dir, append(resume, "--set", "train.steps=4")...)
	if want := fmt.Sprintf("resuming the newest run of its name that has a checkpoint, at step 2 from %s/ckpt/step_00000002 (restart 1)\n", run); !strings.Contains(again.stderr, want) {
		t.Errorf("want %q: %s", want, again.stderr)
	}
	if n := len(metrics(t, filepath.Join(dir, run))); n != 4 {
		t.Errorf("%d steps", n)
	}
	finished := alone.run(t, dir, append(resume, "--set", "train.steps=4")...)
	if want := "note: the run is finished, 4 steps are done: to train on, set train.steps to more\n"; finished.status != exitDone || !strings.Contains(finished.stderr, want) || strings.Contains(again.stderr, "is finished") {
		t.Errorf("status %d, want %q: %s", finished.status, want, finished.stderr)
	}
	expect.OK(t, os.RemoveAll(filepath.Join(dir, run, "ckpt")))
	named := alone.run(t, dir, append(resume, "--run-dir", run)...)
	if want := "nothing to resume: " + run + " has no checkpoint, the run begins again at step 0 (restart 3)\n"; !strings.Contains(named.stderr, want) {
		t.Errorf("want %q: %s", want, named.stderr)
	}
	if n := len(metrics(t, filepath.Join(dir, run))); n != 2 {
		t.Errorf("%d steps", n)
	}
}

// TestTrainResumesInOtherCuts: a run that resumes with another balancer of static cuts has that
// balancer's cuts, not those of the checkpoint.
func TestTrainResumesInOtherCuts(t *testing.T) {
	t.Parallel()
	dir := folder(t, "")
	interrupted(t, dir)
	for _, c := range []struct {
		more []string
		cuts string
	}{
		{sets("balance.kind=layout", "balance.layout=Ettt|t|t|tL"), "[0 4 5 6 8]"},
		{sets("balance.kind=layout", "balance.layout=Et|tt|t|ttL"), "[0 2 4 5 8]"},
	} {
		e := alone.run(t, dir, training(append(append(saving, c.more...), "--run-dir", "run", "--resume")...)...)
		last, err := checkpoint.Open(filepath.Join(dir, "run", record.CheckpointDir, checkpoint.Name(12)))
		expect.OK(t, err)
		if got := fmt.Sprint(last.Layout.Cuts); e.status != exitDone || got != c.cuts {
			t.Errorf("%v: status %d, cuts %s, want %s", c.more, e.status, got, c.cuts)
		}
		expect.OK(t, os.WriteFile(filepath.Join(last.Dir, checkpoint.ManifestFile), nil, 0o600))
	}
}

// TestTrainResumesWithMovedData: a run resumes with the same text at another path, but not with
// another text.
func TestTrainResumesWithMovedData(t *testing.T) {
	t.Parallel()
	dir := folder(t, "")
	interrupted(t, dir)
	text := read(t, filepath.Join(dir, "text.txt"))
	resume := training(append(append(saving, sets("data.path=moved.txt")...), "--run-dir", "run", "--resume")...)
	expect.OK(t, os.WriteFile(filepath.Join(dir, "moved.txt"), []byte(text+"more"), 0o600))
	alone.run(t, dir, resume...).refused(t, exitUsage, "data.path: text with hash ", ": may not change on resume")
	expect.OK(t, os.WriteFile(filepath.Join(dir, "moved.txt"), []byte(text), 0o600))
	e := alone.run(t, dir, resume...)
	if want := "note: data.path: \"text.txt\" in the checkpoint, \"moved.txt\" here: the text is the same\n"; e.status != exitDone || !strings.Contains(e.stderr, want) {
		t.Errorf("status %d, want %q: %s", e.status, want, e.stderr)
	}
}

// TestTrainWithoutItsLastCheckpoint: a run that could not write its last checkpoint has failed.
func TestTrainWithoutItsLastCheckpoint(t *testing.T) {
	t.Parallel()
	dir := folder(t, "")
	expect.OK(t, os.Mkdir(filepath.Join(dir, "run"), 0o700))
	expect.OK(t, os.Symlink("nowhere", filepath.Join(dir, "run", "ckpt")))
	e := alone.run(t, dir, training(append(sets("checkpoint.every=end"), "--run-dir", "run", "--resume")...)...)
	want := "dynmo: all 12 steps are done, but there is no checkpoint: free space, then --resume begins at step 0\n"
	if e.status != exitFailure || !strings.Contains(e.stderr, want) || !strings.Contains(e.stderr, "warning: no checkpoint after 12 steps: ") {
		t.Errorf("status %d, want %q: %s", e.status, want, e.stderr)
	}
}

func TestTrainRefusesToResume(t *testing.T) {
	t.Parallel()
	dir := folder(t, "")
	interrupted(t, dir)
	before := read(t, filepath.Join(dir, "run", record.MetricsFile))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--run-dir", "run", "--resume", "--force"}, "--resume and --force: want one of them"},
		{[]string{"--no-run-dir", "--resume"}, "--resume without a run directory"},
		{append(sets("model.hidden=64"), "--run-dir", "run", "--resume"), "config: model.hidden: 32 in the checkpoint, 64 here: may not change on resume"},
		{append(sets("parallel.microbatches=2"), "--run-dir", "run", "--resume"), "config: parallel.replicas x parallel.microbatches: 1 x 4 in the checkpoint, 1 x 2 here"},
		{[]string{"--run-dir", "run"}, "a run already lies there (metrics.jsonl exists): --resume goes on with it"},
	} {
		alone.run(t, dir, training(c.args...)...).refused(t, exitUsage, c.want)
	}
	if after := read(t, filepath.Join(dir, "run", record.MetricsFile)); after != before {
		t.Error("a run that was refused changed the records")
	}
}

// TestTrainSecondRunInADirectory: while a run continues, no other run may write into its directory.
// After it was killed another run may.
func TestTrainSecondRunInADirectory(t *testing.T) {
	expect.NewFault(t, "F07", "")
	t.Parallel()
	dir := folder(t, "")
	args := training(append(append(endless, saving...), "--run-dir", "run", "--resume")...)
	r := start(t, alone.command(t, dir, args...))
	r.reach(t, filepath.Join(dir, "run"), 6)
	host, err := os.Hostname()
	expect.OK(t, err)
	alone.run(t, dir, args...).refused(t, exitUsage,
		fmt.Sprintf("record: run directory run: process %d on host %s, since ", r.cmd.Process.Pid, host), " writes into it: wait for its end or stop it, or take another directory")
	expect.OK(t, r.cmd.Process.Kill())
	_ = r.wait(t)
	e := alone.run(t, dir, append(args, "--set", "train.steps=1")...)
	if !strings.Contains(e.stderr, "(restart 1)") || e.status != exitDone {
		t.Errorf("status %d: %s", e.status, e.stderr)
	}
}

// TestTrainStoppedStatus: a run that a signal stops ends with the status in README.
func TestTrainStoppedStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		args   []string
		status int
	}{
		{"asked to be a success", sets("train.stopped_is_success=true"), exitDone},
		{"no checkpoints", sets("checkpoint.every=never"), exitDone},
		{"a checkpoint", nil, exitStopped},
	} {
		dir := folder(t, "")
		r := start(t, alone.command(t, dir, training(append(append(endless, c.args...), "--run-dir", "run")...)...))
		r.reach(t, filepath.Join(dir, "run"), 2)
		expect.OK(t, r.cmd.Process.Signal(syscall.SIGTERM))
		if e := r.wait(t); e.status != c.status || len(e.errors()) != 1 {
			t.Errorf("%s: status %d, want %d: %s", c.name, e.status, c.status, e.stderr)
		}
		_, err := os.Stat(filepath.Join(dir, "run", "ckpt", "LATEST"))
		if saved := c.name != "no checkpoints"; (err == nil) != saved {
			t.Errorf("%s: checkpoint: %v", c.name, err)
		}
	}
}
