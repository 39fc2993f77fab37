package main

import (
	"testing"

	"dynmo/src/kernel/cpu"
)

// TestPrecisionIsRefused: a run whose products need oneDNN ends before it begins where it is missing, in one
// process and in several, or where it may not take the instructions. So does a benchmark.
func TestPrecisionIsRefused(t *testing.T) {
	if !cpu.Built {
		t.Skip("built without kernels in C")
	}
	for _, ranks := range []int{0, 4} {
		w := world{ranks: ranks}
		w.need(t)
		cmd := w.command(t, folder(t, ""), append([]string{"train", "run.toml"}, sets("device.cpu_precision=bf16")...)...)
		cmd.Env = append(cmd.Env, "DYNMO_DNNL_LIBRARY=absent.so")
		finish(t, cmd).refused(t, exitUsage, `device.cpu_precision = "bf16"`, "bf16-emulated")
	}
	for _, variable := range []string{"DYNMO_DNNL_LIBRARY=absent.so", "DYNMO_DNNL_LIBRARY=none", "DNNL_MAX_CPU_ISA=AVX2"} {
		cmd := world{}.command(t, t.TempDir(), "bench", "step", "--precision", "bf16")
		cmd.Env = append(cmd.Env, variable)
		finish(t, cmd).refused(t, exitFailure, "--precision bf16")
	}
	for _, line := range [][]string{{"step", "--precision", "bf16"}, {"gemm", "--rows", "16"}} {
		world{}.run(t, t.TempDir(), append([]string{"bench", "--threads", "0"}, line...)...).refused(t, exitUsage, "--threads 0")
	}
}
