package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"dynmo/src/expect"
	"dynmo/src/lab/verdict"
	"dynmo/src/record"
)

// leaving are settings with which four stages become two at the first decision.
var leaving = sets("balance.kind=partition", "repack.kind=sustain", "repack.tolerance=0.99", "repack.unit=rank", "repack.stages=2", "elastic.release=slurm")

// packed waits until a run has recorded `more` steps after its packing.
func (r *running) packed(t *testing.T, run string, more int) {
	t.Helper()
	for n := 1; ; n++ {
		r.reach(t, run, n)
		text, err := os.ReadFile(filepath.Join(run, record.MetricsFile))
		expect.OK(t, err)
		if strings.Contains(string(text), `"ranks":2,`) {
			break
		}
	}
	r.reach(t, run, steps(run)+more)
}

// used returns the CPU time of a process, in ticks of the system.
func used(t *testing.T, pid int) int {
	t.Helper()
	f := stat(pid)
	if len(f) < 13 {
		t.Fatalf("process %d has ended", pid)
	}
	user, err := strconv.Atoi(f[11])
	expect.OK(t, err)
	system, err := strconv.Atoi(f[12])
	expect.OK(t, err)
	return user + system
}

// TestTrainParks: where no nodes can be given back, ranks without layers wait, whatever the settings
// say. One line warns of such settings. The waiting ranks use next to nothing of a core. A signal to one of them ends
// the run with a checkpoint; the run resumes to the weights of one that was never packed.
func TestTrainParks(t *testing.T) {
	four.need(t)
	t.Parallel()
	dir := folder(t, "")
	run := filepath.Join(dir, "run")
	args := func(more ...string) []string {
		return training(slices.Concat(leaving, sets("train.steps=600", "train.log_every=1000"), []string{"--run-dir", "run"}, more)...)
	}
	r := start(t, four.command(t, dir, args()...))
	r.packed(t, run, 1)
	pids := rankPIDs(t, r.cmd, 4)
	before := make([]int, 4)
	for rank, pid := range pids {
		before[rank] = used(t, pid)
	}
	r.reach(t, run, steps(run)+200)
	ticks := func(rank int) int { return used(t, pids[rank]) - before[rank] }
	trains, parked := ticks(0), 1 // rank 0 trains
	for rank := 2; rank < 4; rank++ {
		if ticks(rank) < ticks(parked) {
			parked = rank
		}
	}
	// A rank that spins gets as much of the cores as rank 0. A rank that sleeps wakes for each time that
	// passes, and on loaded cores more time passes while rank 0 works.
	if n := ticks(parked); n > 2+trains/5 {
		t.Errorf("rank %d is parked and used %d ticks of CPU time, rank 0 %d", parked, n, trains)
	}
	expect.OK(t, syscall.Kill(pids[parked], syscall.SIGTERM))
	e := r.wait(t)
	if want := "dynmo: stopped by a signal to another rank after "; e.status != exitStopped || !strings.Contains(e.stderr, want) {
		t.Errorf("status %d, want %d and %q: %s", e.status, exitStopped, want, e.stderr)
	}
	if n := strings.Count(e.stderr, "warning: "); n != 1 || !strings.Contains(e.stderr, `warning: elastic.release = "slurm": this is no Slurm job`) {
		t.Errorf("%d warnings: %s", n, e.stderr)
	}
	got := finalWeights(t, four.run(t, dir, args("--resume")...))
	never := append(sets("train.steps=600", "balance.kind=uniform"), "--no-run-dir")
	if want := finalWeights(t, alone.run(t, folder(t, ""), training(never...)...)); got != want {
		t.Errorf("weights %s, want %s", got, want)
	}
}

// TestTrainLeaves: under mpirun ranks without layers end before the run does, over every transport
// of Open MPI that is here. The weights are those of a run that was never packed.
func TestTrainLeaves(t *testing.T) {
	four.need(t)
	ucx := []string{"OMPI_MCA_pml=ucx", "UCX_TLS=tcp,self", "OMPI_MCA_opal_common_ucx_tls=any", "OMPI_MCA_opal_common_ucx_devices=any"}
	ofi := []string{"OMPI_MCA_pml=cm", "OMPI_MCA_mtl=ofi", "OMPI_MCA_opal_common_ofi_provider_include=tcp;ofi_rxm", "OMPI_MCA_mtl_ofi_provider_include=tcp;ofi_rxm", "FI_TCP_IFACE=lo"}
	never := append(sets("train.steps=1000", "balance.kind=uniform"), "--no-run-dir")
	want := finalWeights(t, alone.run(t, folder(t, ""), training(never...)...))
	for _, c := range []struct {
		name, component string // as ompi_info names it
		env             []string
	}{
		{"shared memory", "", nil},
		{"TCP", "", []string{"OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,tcp", "OMPI_MCA_btl_tcp_if_include=lo"}},
		{"UCX", "mca:pml:ucx:", ucx},
		{"OFI", "mca:mtl:ofi:", ofi},
	} {
		t.Run(c.name, func(t *testing.T) {
			if about, err := exec.Command("ompi_info", "--parsable").Output(); err != nil || !strings.Contains(string(about), c.component) {
				t.Skipf("this MPI has no %s", c.name)
			}
			dir := folder(t, "")
			run := filepath.Join(dir, "run")
			cmd := four.command(t, dir, training(slices.Concat(leaving, sets("elastic.release=exit", "train.steps=1000", "train.log_every=1000", "checkpoint.every=100"), []string{"--run-dir", "run"})...)...)
			cmd.Env = append(cmd.Env, c.env...)
			r := start(t, cmd)
			r.packed(t, run, 1)
			for children(r.cmd.Process.Pid) != 2 {
				if steps(run) >= 1000 {
					t.Fatal("never two ranks alone")
				}
				time.Sleep(time.Millisecond)
			}
			e := r.wait(t)
			if got := finalWeights(t, e); e.status != exitDone || got != want {
				t.Errorf("status %d, weights %s, want %s: %s", e.status, got, want, e.stderr)
			}
			if strings.Contains(e.stderr, "warning: ") {
				t.Error(e.stderr)
			}
		})
	}
}

// children returns how many processes a process has started that run.
func children(pid int) (n int) {
	list, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range list {
		child, err := strconv.Atoi(filepath.Base(dir))
		if f := stat(child); err == nil && len(f) > 1 && f[0] != "Z" && f[1] == strconv.Itoa(pid) {
			n++
		}
	}
	return n
}

// TestTrainKilledWhileParked: a rank that is killed while others are parked ends the run, whether
// it is parked or trains. The error names it.
func TestTrainKilledWhileParked(t *testing.T) {
	four.need(t)
	t.Parallel()
	for _, victim := range []int{1, 3} {
		f := expect.NewFault(t, "F01", fmt.Sprintf("parked rank=%d", victim))
		dir := folder(t, "")
		run := filepath.Join(dir, "run")
		r := start(t, four.command(t, dir, training(slices.Concat(leaving, endless, []string{"--run-dir", "run"})...)...))
		r.packed(t, run, 1)
		pids := rankPIDs(t, r.cmd, 4)
		killed := time.Now()
		expect.OK(t, syscall.Kill(pids[victim], syscall.SIGKILL))
		e := r.wait(t)
		gone(t, append(pids, r.cmd.Process.Pid), killed.Add(soon()))
		f.Detect = time.Since(killed)
		if e.status == exitDone || f.Detect > soon() {
			t.Errorf("status %d after %v", e.status, f.Detect)
		}
		e.oneCause(t, victim, pids[victim], `gone, in step \d+: `)
		if s, err := verdict.ReadSummary(run); err != nil || s == nil || s.Status != verdict.Failed {
			t.Errorf("summary %+v, %v", s, err)
		}
	}
}
