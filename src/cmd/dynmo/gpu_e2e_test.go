//go:build cuda && cgo

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"dynmo/src/device/cuda"
	"dynmo/src/expect"
)

// pair builds dynmo and dynmo-cuda in one folder, like ./build.sh cuda. It returns the path of
// dynmo.
var pair = sync.OnceValues(func() (program string, err error) {
	dir, err := built()
	if err != nil {
		return "", err
	}
	all := strings.Split(tags(), ",")
	for name, with := range map[string][]string{
		"dynmo":     slices.DeleteFunc(slices.Clone(all), func(tag string) bool { return tag == "cuda" }),
		siblingName: all,
	} {
		out, err := exec.Command("go", "build", "-ldflags", "-w", "-tags", strings.Join(with, ","), "-o", filepath.Join(dir, "pair", name), ".").CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("go build: %w\n%s", err, out)
		}
	}
	return filepath.Join(dir, "pair", "dynmo"), nil
})

// gpuRun runs dynmo of the pair, under mpirun if ranks > 0. environment has changes of the
// environment.
func gpuRun(t *testing.T, dir string, ranks int, environment []string, args ...string) ended {
	t.Helper()
	return finish(t, gpuCommand(t, dir, ranks, environment, args...))
}

func gpuCommand(t *testing.T, dir string, ranks int, environment []string, args ...string) *exec.Cmd {
	t.Helper()
	program, err := pair()
	expect.OK(t, err)
	line := append([]string{program}, args...)
	if ranks > 0 {
		world{ranks}.need(t)
		line = append([]string{"mpirun", "-np", fmt.Sprint(ranks)}, line...)
	}
	cmd := inWorld(t, dir, line...)
	cmd.Env = append(cmd.Env, environment...)
	return cmd
}

// onGPU adds settings for a GPU: device.kind, a clock that a GPU has, and the library's own
// algorithms. Algorithms chosen by timing may differ in the next run.
func onGPU(list ...string) []string {
	return training(sets(append([]string{"device.kind=cuda", "run.clock=auto", "device.tune=false"}, list...)...)...)
}

// emulated skips a test that needs several GPUs, or a GPU that fails on command.
func emulated(t *testing.T) {
	t.Helper()
	driver, err := cuda.Probe()
	if err != nil || len(driver.GPUs) == 0 || !strings.Contains(driver.GPUs[0], "emulated") {
		t.Skip("the driver is not the emulator")
	}
}

var finalHash = regexp.MustCompile(`(?m)[0-9a-f]{64}`)

// TestTrainOnGPUs trains with a GPU for every process and NCCL between them. The balancer moves
// layers. The bits are those of one process.
func TestTrainOnGPUs(t *testing.T) {
	emulated(t)
	dir := folder(t, "[balance]\nevery = 2\n[dynamic]\nkind = \"prune\"\n[prune]\nstart = 2\nevery = 2\ntimes = 3\n")
	alone := gpuRun(t, dir, 0, nil, onGPU("parallel.stages=1")...)
	if alone.status != 0 || !strings.Contains(alone.stderr, "computes on GPU") {
		t.Fatalf("status %d\n%s", alone.status, alone.stderr)
	}
	want := finalHash.FindString(alone.stdout + alone.stderr)
	if want == "" {
		t.Fatalf("no hash\n%s%s", alone.stdout, alone.stderr)
	}
	for _, c := range []struct {
		name      string
		gpus      int
		set       []string
		transport string
	}{
		{"one each", 4, nil, ": NCCL 2."},
		{"shared", 1, []string{"device.share=true"}, ": host memory carries"},
		{"one each, through the host", 4, []string{"comm.transport=host"}, "host memory carries"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := gpuRun(t, dir, 4, []string{fmt.Sprintf("DYNMO_EMULATE_DEVICES=%d", c.gpus)}, onGPU(c.set...)...)
			if e.status != 0 || !strings.Contains(e.stderr, c.transport) {
				t.Fatalf("status %d, or not %q\n%s", e.status, c.transport, e.stderr)
			}
			if got := finalHash.FindString(e.stdout + e.stderr); got != want {
				t.Errorf("hash %q, one process has %q", got, want)
			}
		})
	}
}

// TestTrainRefusesGPUs: a missing GPU or library, or forbidden sharing, ends a run with one error,
// on one process and on several.
func TestTrainRefusesGPUs(t *testing.T) {
	emulated(t)
	nowhere := t.TempDir()
	other := filepath.Join(nowhere, "libother.so")
	source := "struct { int version; } table = {-3}; void *dynmo_cuda_calls(void) { return &table; }"
	compile := exec.Command("cc", "-shared", "-fPIC", "-x", "c", "-o", other, "-")
	compile.Stdin = strings.NewReader(source)
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		name   string
		ranks  int
		env    []string
		set    []string
		status int
		want   []string
	}{
		{"no driver, or one without a GPU", 0, []string{"LD_LIBRARY_PATH=" + nowhere}, nil, exitUsage, []string{"device.kind"}},
		{"no GPU", 0, []string{"DYNMO_EMULATE_DEVICES=0"}, nil, exitUsage, []string{"device.kind"}},
		{"no GPU to be seen", 0, []string{"CUDA_VISIBLE_DEVICES="}, nil, exitUsage, []string{"device.kind", "CUDA_VISIBLE_DEVICES"}},
		{"no library", 0, []string{"DYNMO_CUDA_LIBRARY=" + filepath.Join(nowhere, "absent.so")}, nil, exitUsage, []string{"absent.so"}},
		{"library of another version", 0, []string{"DYNMO_CUDA_LIBRARY=" + other}, nil, exitUsage, []string{"libother.so", "version -3"}},
		{"fewer GPUs than ranks", 4, []string{"DYNMO_EMULATE_DEVICES=2"}, nil, exitUsage, []string{"device.share"}},
		{"virtual clock", 0, nil, []string{"run.clock=virtual"}, exitUsage, []string{"run.clock"}},
		{"no NCCL", 4, []string{"DYNMO_EMULATE_DEVICES=4", "DYNMO_NCCL_LIBRARY=" + filepath.Join(nowhere, "absent.so")}, nil, exitUsage, []string{"absent.so"}},
		{"out of memory", 0, []string{"DYNMO_EMULATE_MEMORY=33700000"}, nil, exitUsage, []string{"memory: ranks on host", "(GPU-", "wanted more parallel.stages"}},
		{"a memory error of the GPU", 0, []string{"DYNMO_EMULATE_FAULT=ecc", "DYNMO_EMULATE_FAULT_AFTER=300"}, nil, exitFailure, []string{"step ", "ECC"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := folder(t, "")
			set := c.set
			if c.ranks == 0 {
				set = append(set, "parallel.stages=1")
			}
			gpuRun(t, dir, c.ranks, c.env, onGPU(set...)...).refused(t, c.status, c.want...)
		})
	}
}

// TestTrainKilledRankOnGPUs is law 8 with NCCL. Without it GPUs would wait for ever for a GPU whose
// rank is gone.
func TestTrainKilledRankOnGPUs(t *testing.T) {
	emulated(t)
	command := func(t *testing.T, dir string, args ...string) *exec.Cmd {
		return gpuCommand(t, dir, 4, []string{"DYNMO_EMULATE_DEVICES=4"}, args...)
	}
	for _, victim := range []int{0, 1, 3} {
		t.Run(fmt.Sprintf("rank=%d", victim), func(t *testing.T) {
			killRank(t, command, 4, victim, rand.New(rand.NewPCG(1, uint64(victim))),
				"device.kind=cuda", "run.clock=auto", "model.hidden=32", "model.sequence=16")
		})
	}
}

// TestProfileOnGPU measures a model's layers on the GPU.
func TestProfileOnGPU(t *testing.T) {
	dir := folder(t, "")
	e := gpuRun(t, dir, 0, nil, append([]string{"profile", "run.toml", "-o", "costs.json"},
		sets("device.kind=cuda", "run.clock=auto", "parallel.stages=1")...)...)
	if e.status != 0 {
		t.Fatalf("status %d\n%s", e.status, e.stderr)
	}
	text, err := os.ReadFile(filepath.Join(dir, "costs.json"))
	if err != nil || !strings.Contains(string(text), "wall") {
		t.Errorf("%v\n%s", err, text)
	}
}
