package main

import (
	"testing"

	"dynmo/src/kernel/cpu"
)

// TestPrecisionIsRefused: a run whose products need oneDNN ends before it begins where it is missing, in one
// process and in several. So does a benchmark.
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
	cmd := world{}.command(t, t.TempDir(), "bench", "step", "--precision", "bf16")
	cmd.Env = append(cmd.Env, "DYNMO_DNNL_LIBRARY=absent.so")
	finish(t, cmd).refused(t, exitFailure, "--precision bf16")
}
