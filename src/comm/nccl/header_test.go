package nccl

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestHeader compares what csrc/nccl knows of NCCL with its header, which needs that of CUDA's
// runtime: those that the compiler finds, or of the folders in DYNMO_NCCL_INCLUDE.
func TestHeader(t *testing.T) {
	args := []string{"-std=c11", "-fsyntax-only"}
	for _, dir := range filepath.SplitList(os.Getenv("DYNMO_NCCL_INCLUDE")) {
		args = append(args, "-I", dir)
	}
	cc := cmp.Or(os.Getenv("CC"), "cc")
	probe := filepath.Join(t.TempDir(), "probe.c")
	if err := os.WriteFile(probe, []byte("#include <nccl.h>\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if exec.Command(cc, append(args, probe)...).Run() != nil {
		t.Skip("no compiler that finds nccl.h (DYNMO_NCCL_INCLUDE names its folder)")
	}
	if out, err := exec.Command(cc, append(args, "../../../csrc/nccl/conform.c")...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
