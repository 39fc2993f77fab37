//go:build cuda && cgo

package main

import (
	"strings"
	"testing"

	"dynmo/src/nodebench"
)

// TestBenchGPU measures small shapes. dynmo runs its sibling for that.
func TestBenchGPU(t *testing.T) {
	emulated(t)
	e := gpuRun(t, t.TempDir(), 0, nil, "bench", "gpu", "--quick", "--json", "--only", "adamw,step")
	if e.status != 0 {
		t.Fatalf("status %d\n%s%s", e.status, e.stdout, e.stderr)
	}
	seen := map[string]bool{}
	for _, r := range decodedLines[nodebench.Result](t, e.stdout) {
		seen[r.Name] = true
		if r.Wrong != 0 || !r.OK || r.Reach != 0 || !strings.HasPrefix(r.Name, "emulated/gpu/") {
			t.Errorf("%+v", r)
		}
	}
	for _, name := range []string{
		"copy", "gemm_f32_48", "gemm_bf16_48", "adamw", "step_tokens_per_second", "step_memory_of_process",
	} {
		if !seen["emulated/gpu/"+name] {
			t.Errorf("no figure %s", name)
		}
	}
	if !strings.Contains(e.stderr, "emulated") {
		t.Errorf("the GPU is not named: %s", e.stderr)
	}
}
