//go:build cuda && cgo

package cuda

import (
	"strings"
	"testing"

	"dynmo/src/device/cuda/cudatest"
	"dynmo/src/kernel/kerneltest"
	"dynmo/src/tensor"
)

// pathVariable names the kernels of attention that a backend takes.
const pathVariable = "DYNMO_CUDA_ATTENTION"

// Hopper's kernels run on the emulator too, where nothing takes them unless told to.
func TestHopperAttention(t *testing.T) {
	t.Setenv(pathVariable, "hopper")
	dev := newEverywhere(t)
	if _, err := New(tensor.BF16); err != nil && !cudatest.Emulated(dev.Device) {
		t.Skipf("no GPU of compute capability 9.0: %v", err)
	}
	kerneltest.RunAttention(t, openBackend(t, tensor.BF16), dev, tolerance)
}

func TestAttentionPath(t *testing.T) {
	dev := cudatest.New(t)
	if cudatest.Emulated(dev) {
		expectPath(t, "", "tiles")
		expectPath(t, "hopper", "hopper")
	}
	expectPath(t, "tiles", "tiles")
	expectPath(t, "plain", "plain")
	t.Setenv(pathVariable, "fast")
	if _, err := New(tensor.BF16); err == nil || !strings.Contains(err.Error(), pathVariable+": want plain, tiles") {
		t.Errorf("a path that is none: error %v", err)
	}
}

func expectPath(t *testing.T, wanted, want string) {
	t.Helper()
	t.Setenv(pathVariable, wanted)
	if id := openBackend(t, tensor.BF16).Identity(); !strings.Contains(id, " attention "+want+" ") {
		t.Errorf("%s=%s: identity %q, want attention by %s", pathVariable, wanted, id, want)
	}
}
