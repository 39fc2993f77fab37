//go:build cuda && cgo

package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gorgonia.org/cu"

	"dynmo/src/device"
	devcuda "dynmo/src/device/cuda"
	"dynmo/src/device/cuda/cudatest"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/kernel/kerneltest"
	"dynmo/src/tensor"
)

// tolerance is the unit of kerneltest's bounds, as it is on CPUs.
const tolerance = 1e-5

// openBackend returns a backend that lives as long as the test.
func openBackend(t *testing.T, d tensor.DType) kernel.Backend {
	t.Helper()
	k, err := New(d)
	expect.OK(t, err)
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// everywhere is a device for tests within a test, which have goroutines and so
// threads of their own: a thread that asks for a stream gets the device's context
// with it. They all get the same stream.
type everywhere struct {
	*devcuda.Device
	context cu.CUContext
	stream  *devcuda.Stream
}

func newEverywhere(t *testing.T) everywhere {
	t.Helper()
	dev := cudatest.New(t)
	context, err := cu.CurrentContext()
	expect.OK(t, err)
	return everywhere{dev, context, dev.NewStream().(*devcuda.Stream)}
}

func (d everywhere) NewStream() device.Stream {
	if err := d.context.Lock(); err != nil {
		d.stream.Fail(err)
	}
	return kept{d.stream}
}

// Order has the emulator run warps, lanes and blocks forwards, backwards or at random.
func (everywhere) Order(number int) {
	order := [...]string{"forward", "reverse", "random:18"}[number]
	if err := os.Setenv("DYNMO_EMULATE_ORDER", order); err != nil {
		panic(err)
	}
}

// kept is a stream that is still wanted when its user is done with it.
type kept struct{ *devcuda.Stream }

func (kept) Close() {}

func TestConformance(t *testing.T) {
	t.Setenv("DYNMO_EMULATE_ORDER", os.Getenv("DYNMO_EMULATE_ORDER")) // as it was, in the end
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
		t.Run(d.String(), func(t *testing.T) {
			dev := newEverywhere(t)
			kerneltest.Run(t, openBackend(t, d), dev, tolerance)
		})
	}
}

func TestIdentity(t *testing.T) {
	dev := cudatest.New(t)
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
		k := openBackend(t, d)
		if k.Name() != "cuda" || k.DType() != d {
			t.Errorf("backend %s of %s, want cuda of %s", k.Name(), k.DType(), d)
		}
		id := k.Identity()
		if !strings.Contains(id, d.String()) || !strings.Contains(id, "cublasLt") {
			t.Errorf("identity %q names no element type or no cublasLt", id)
		}
		if strings.Contains(id, "emulated") != cudatest.Emulated(dev) {
			t.Errorf("identity %q on %s", id, dev.Describe().Name)
		}
	}
}

func TestOnlyTheElementsOfGPUs(t *testing.T) {
	if _, err := New(tensor.F64); err == nil || !strings.Contains(err.Error(), "type f64: want f32 or bf16") {
		t.Errorf("f64: error %v", err)
	}
}

// A call that could not be enqueued is an error of the stream, once, and the first.
func TestFailureReachesSync(t *testing.T) {
	dev := cudatest.New(t)
	k, s := openBackend(t, tensor.F32).(*backend), dev.NewStream()
	k.enqueued(s, "Add", 1)         // cudaErrorInvalidValue
	k.enqueued(s, "Mask", 10000+15) // CUBLAS_STATUS_NOT_SUPPORTED
	if err := s.Sync(); err == nil || err.Error() != "cuda: Add: CUDA: invalid argument (status 1)" {
		t.Errorf("error %v", err)
	}
	if err := s.Sync(); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := k.failure("Mask", 10000+15); err.Error() != "cuda: Mask: cuBLASLt: not supported (status 15)" {
		t.Errorf("error %v", err)
	}
}

func TestLibraryMissingOrOld(t *testing.T) {
	dir := t.TempDir()
	build := func(name, text string) string {
		source, path := filepath.Join(dir, name+".c"), filepath.Join(dir, name+".so")
		expect.OK(t, os.WriteFile(source, []byte(text), 0o666))
		if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", path, source).CombinedOutput(); err != nil {
			t.Skipf("no C compiler where the test runs: %v\n%s", err, out)
		}
		return path
	}
	old := build("old", "const int *dynmo_cuda_calls(void) { static const int version = -7; return &version; }\n")
	other := build("other", "int answer = 42;\n")
	missing := filepath.Join(dir, "missing.so")
	for path, want := range map[string]string{
		missing: "No such file",
		other:   "dynmo_cuda_calls",
		old:     "version -7, but this binary wants version ",
	} {
		if _, err := open(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one that names the file and says %s", filepath.Base(path), err, want)
		}
	}
}

func TestLibraryIsNamed(t *testing.T) {
	t.Setenv(libraryVariable, "/opt/kernels.so")
	if got := Library(); got != "/opt/kernels.so" {
		t.Errorf("%s=/opt/kernels.so: %s", libraryVariable, got)
	}
	dir := t.TempDir()
	binary, beside := filepath.Join(dir, "bin", "dynmo"), filepath.Join(dir, "lib", "libdynmo_cuda.so")
	if got := libraryOf(binary); got != "libdynmo_cuda.so" {
		t.Errorf("nothing beside the binary: %s, want what the loader finds", got)
	}
	expect.OK(t, os.Mkdir(filepath.Dir(beside), 0o777))
	expect.OK(t, os.WriteFile(beside, nil, 0o666))
	if got := libraryOf(binary); got != beside {
		t.Errorf("%s is there: %s", beside, got)
	}
}
