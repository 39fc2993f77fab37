package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"dynmo/src/device/cuda"
)

func TestBenchGPURefusesBadFlags(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--only matrix", "--only matrix: want some of copy, gemm, step"},
		{"--threads 2", "--threads: has no effect"},
		{"--clock virtual", "want --clock wall"},
		{"--rounds 0", "--rounds 0: want at least 1"},
	} {
		status, stdout, stderr := benchOnGPU(test.args)
		if status != exitUsage || !strings.Contains(stderr, test.want) || stdout != "" {
			t.Errorf("bench gpu %s: status %d, stdout %q, stderr %q; want status %d and %q",
				test.args, status, stdout, stderr, exitUsage, test.want)
		}
	}
}

// Without a GPU the command says what is missing.
func TestBenchGPUWithoutOne(t *testing.T) {
	if _, err := cuda.Probe(); err == nil || cuda.Built {
		t.Skip("this machine has a GPU: asking for it would replace the test")
	}
	status, stdout, stderr := benchOnGPU("--quick")
	if status != exitUsage || !strings.Contains(stderr, `device.kind = "cuda": `) || stdout != "" {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

func benchOnGPU(args string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	root := &cobra.Command{Use: "dynmo", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(benchCommand())
	status = execute(root, append([]string{"bench", "gpu"}, strings.Fields(args)...), &out, &errs)
	return status, out.String(), errs.String()
}
