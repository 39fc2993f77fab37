//go:build cgo

package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/expect"
)

func TestKernels(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	const missing = "const char *dynmo_cuda_missing(void) { return "
	for _, test := range []struct{ name, source, built, fault string }{
		{"kernels", `const char dynmo_cuda_built[] = "nvcc 11.8";` + missing + "0; }", "nvcc 11.8", ""},
		{"emulator", missing + "0; }", "not built by build.sh cuda", ""},
		{"alone", missing + `"no cuBLASLt"; }`, "", "no cuBLASLt"},
		{"stranger", "void other(void) {}", "", "it has no dynmo_cuda_missing"},
	} {
		library := filepath.Join(t.TempDir(), test.name+".so")
		build := exec.Command(cc, "-shared", "-fPIC", "-x", "c", "-o", library, "-")
		build.Stdin = strings.NewReader(test.source)
		if text, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		built, err := Kernels(library)
		if built != test.built || (err == nil) != (test.fault == "") || err != nil && !strings.Contains(err.Error(), test.fault) {
			t.Errorf("%s: %q, %v, want %q, %q", test.name, built, err, test.built, test.fault)
		}
	}
}

// TestNoGPU: without the kernel module of the driver no GPU is the driver's fault, not that of the job's settings.
func TestNoGPU(t *testing.T) {
	loaded := t.TempDir()
	t.Setenv("CUDA_VISIBLE_DEVICES", "")
	expect.OK(t, os.Unsetenv("CUDA_VISIBLE_DEVICES"))
	for folder, want := range map[string]string{loaded: "CUDA_VISIBLE_DEVICES", loaded + "/none": "the kernel module of the NVIDIA driver is not loaded"} {
		if got := noGPU(folder).Error(); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", folder, got, want)
		}
	}
}
