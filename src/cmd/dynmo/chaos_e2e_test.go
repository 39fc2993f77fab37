package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"dynmo/src/expect"
	"dynmo/src/fault"
)

// chaotic are settings of a run that prunes, moves layers and packs itself onto fewer ranks.
var chaotic = sets("model.hidden=64", "model.sequence=64", "model.blocks=10", "model.vocab=512", "parallel.microbatches=8", "dynamic.kind=prune", "prune.start=200",
	"prune.every=200", "prune.times=4", "repack.kind=sustain", "repack.tolerance=0.1", "repack.stages=2", "checkpoint.every=50", "comm.stall_seconds=5",
	"train.log_every=1000000", "run.trace_steps=0")

// chaos is such a run of four ranks under mpirun. The test starts it again whenever it ends.
type chaos struct {
	dir  string
	draw *rand.Rand
	args []string
	pace time.Duration // mean seconds of a step without faults
	mean time.Duration // mean time between faults
}

// TestTrainChaos trains for DYNMO_CHAOS minutes, with a random fault a minute. A rank is killed,
// stopped, slowed down, killed in a checkpoint or in a move, or the run is asked to end. Each time
// the same command resumes the run. The weights are those of an undisturbed run, at least half the
// time was not lost, and no process and no file is left. DYNMO_SEED, 1 if it is not set, draws
// other faults, one in DYNMO_EVERY seconds.
func TestTrainChaos(t *testing.T) {
	minutes, err := strconv.ParseFloat(os.Getenv("DYNMO_CHAOS"), 64)
	if err != nil {
		t.Skip("set DYNMO_CHAOS to a number of minutes")
	}
	four.need(t)
	seed, _ := strconv.ParseUint(os.Getenv("DYNMO_SEED"), 10, 64)
	c := &chaos{dir: folder(t, ""), draw: rand.New(rand.NewPCG(max(1, seed), 30))}
	for _, scratch := range []string{"tmp", "shm"} {
		expect.OK(t, os.Mkdir(filepath.Join(c.dir, scratch), 0o700))
	}
	c.mean = time.Minute
	if seconds, err := strconv.ParseFloat(os.Getenv("DYNMO_EVERY"), 64); err == nil {
		c.mean = time.Duration(seconds * float64(time.Second))
	}
	length := time.Duration(minutes * float64(time.Minute))

	took := func(steps int, run string) time.Duration { // with the start of the run
		c.args = c.training(steps, run)
		return c.ends(t, c.start(t, "", max(length, 10*time.Minute)), exitDone).took
	}
	c.pace = (took(500, "longer") - took(100, "shorter")) / 400
	n := int(0.6 * float64(length) / float64(c.pace))
	c.args = c.training(n, "undisturbed")
	began := time.Now()
	want := finalWeights(t, c.ends(t, c.start(t, "", 3*length), exitDone))
	undisturbed := time.Since(began)

	c.args = c.training(n, "run")
	line := expect.NewFault(t, "F30", fmt.Sprintf("seed=%d minutes=%v", max(1, seed), minutes))
	began = time.Now()
	faults, got := c.train(t, 4*length)
	whole := time.Since(began)
	line.Recover = whole / time.Duration(max(1, faults))
	if got != want {
		t.Errorf("weights %s, undisturbed %s", got, want)
	}
	goodput := undisturbed.Seconds() / whole.Seconds()
	t.Logf("%d steps and %d faults in %v, %v without faults: goodput %.0f %%", n, faults, whole.Round(time.Second), undisturbed.Round(time.Second), 100*goodput)
	if goodput < 0.5 {
		t.Errorf("goodput %.2f, want at least 0.5", goodput)
	}
	nobody(t, c.dir)
	for _, scratch := range []string{"tmp", "shm"} {
		if left, err := os.ReadDir(filepath.Join(c.dir, scratch)); len(left) > 0 || err != nil {
			t.Errorf("left in %s: %v (%v)", scratch, left, err)
		}
	}
}

// training returns the arguments of a run with the given number of steps in a run directory.
func (c *chaos) training(steps int, run string) []string {
	return training(append(append([]string{}, chaotic...), "--set", fmt.Sprintf("train.steps=%d", steps), "--run-dir", run, "--resume")...)
}

// start starts the run, with a fault if `wanted` is not "". Launcher and ranks use the folders tmp
// and shm in place of /tmp and /dev/shm.
func (c *chaos) start(t *testing.T, wanted string, most time.Duration) *running {
	t.Helper()
	program, err := build()
	expect.OK(t, err)
	cmd := inWorldFor(t, most, c.dir, append([]string{"mpirun", "-np", "4", program}, c.args...)...)
	cmd.Env = append(cmd.Env, "TMPDIR="+filepath.Join(c.dir, "tmp"), "OMPI_MCA_btl_vader_backing_directory="+filepath.Join(c.dir, "shm"), fault.Variable+"="+wanted)
	return start(t, cmd)
}

// ends waits for the end of a run with a status.
func (c *chaos) ends(t *testing.T, r *running, status int) ended {
	t.Helper()
	e := c.wait(r)
	if e.status != status {
		t.Fatalf("status %d, want %d: %s", e.status, status, e.stderr)
	}
	return e
}

// wait is running.wait for a run that may take long.
func (c *chaos) wait(r *running) ended {
	_ = r.cmd.Wait() // the status is checked elsewhere
	return ended{r.cmd.ProcessState.ExitCode(), r.stdout.String(), r.stderr.String(), time.Since(r.began)}
}

// train starts the run again and again until it is done, for at most `most`. It returns the number
// of faults, and the hash of the final weights.
func (c *chaos) train(t *testing.T, most time.Duration) (faults int, hash string) {
	run := filepath.Join(c.dir, "run")
	for until, idle := time.Now().Add(most), 0; time.Now().Before(until); faults++ {
		before := steps(run)
		after := time.Duration((0.5 + c.draw.Float64()) * float64(c.mean))
		what, wanted := c.fault(before + int(after/c.pace))
		r := c.start(t, wanted, most)
		over := make(chan ended, 1)
		go func() { over <- c.wait(r) }()
		e, struck := c.strike(t, r, what, after, over)
		began := time.Now()
		if !struck {
			e = <-over
		}
		t.Logf("%s: %s%s after %v: status %d, %v later, at step %d", r.began.Format(time.TimeOnly), what, wanted, after.Round(time.Second), e.status, time.Since(began).Round(100*time.Millisecond), steps(run))
		if e.status == exitDone && !strings.Contains(e.stderr, "stopped by") {
			return faults, finalWeights(t, e)
		}
		if idle++; steps(run) > before {
			idle = 0
		}
		if idle == 3 {
			t.Fatalf("no progress in three starts: %s", e.stderr)
		}
	}
	t.Fatalf("not done in %v", most)
	return 0, ""
}

// fault draws the next fault, at about a step: an action from outside, or else a fault that the run
// injects itself.
func (c *chaos) fault(step int) (what, wanted string) {
	rank := c.draw.IntN(4)
	step = max(1, step/50*50)
	switch kind := c.draw.IntN(6); kind {
	case 0:
		phases := fault.Phases()
		return "", (&fault.Fault{Kind: fault.Kill, Step: step, Phase: phases[c.draw.IntN(len(phases))], Rank: rank}).String()
	case 1:
		phases := fault.MovePhases()
		return "", (&fault.Fault{Kind: fault.Kill, Phase: phases[c.draw.IntN(len(phases))], Rank: rank}).String()
	case 2:
		return "kill, slow before: ", (&fault.Fault{Kind: fault.Slow, Step: max(0, step-100), Last: step, Rank: rank, Factor: 2 + 2*float64(c.draw.IntN(2))}).String()
	default:
		return []string{"kill", "stop", "term"}[kind-3], ""
	}
}

// strike acts on a run from outside, after a while. If the run does not reach its own fault, strike
// kills it in the end. It returns the run's result if the run ended before.
func (c *chaos) strike(t *testing.T, r *running, what string, after time.Duration, over chan ended) (e ended, struck bool) {
	if what == "" {
		after *= 2
	}
	select {
	case e := <-over:
		return e, true
	case <-time.After(after):
	}
	victim := c.ranks(r.cmd)
	if len(victim) == 0 {
		return e, false
	}
	pid, with := victim[c.draw.IntN(len(victim))], syscall.SIGKILL
	switch what {
	case "stop":
		with = syscall.SIGSTOP
	case "term":
		pid, with = r.cmd.Process.Pid, syscall.SIGTERM
	}
	if err := syscall.Kill(pid, with); err != nil {
		t.Logf("process %d: %v", pid, err) // the process has ended
	}
	return e, false
}

// ranks returns the processes started by mpirun.
func (c *chaos) ranks(mpirun *exec.Cmd) (list []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || parent(pid) != mpirun.Process.Pid {
			continue
		}
		if environ, _ := os.ReadFile(file); bytes.Contains(environ, []byte("OMPI_COMM_WORLD_RANK=")) {
			list = append(list, pid)
		}
	}
	return list
}
