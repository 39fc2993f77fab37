//go:build cgo

package cuda

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

// A library stays open once it could be opened.
static void *open_library(const char *name, const char **error) {
	void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		*error = dlerror();
	return library;
}

static int call_flags(void *f, unsigned flags) { return ((int (*)(unsigned))f)(flags); }
static int call_int(void *f, int *out) { return ((int (*)(int *))f)(out); }
static int call_get(void *f, int *out, int ordinal) { return ((int (*)(int *, int))f)(out, ordinal); }
static int call_text(void *f, char *out, int bytes, int of) { return ((int (*)(char *, int, int))f)(out, bytes, of); }
static const char *call_string(void *f) { return ((const char *(*)(void))f)(); }
static int call_name(void *f, int status, const char **out) { return ((int (*)(int, const char **))f)(status, out); }
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"unsafe"
)

// library is a shared library that was opened at run time.
type library struct{ handle unsafe.Pointer }

func openLibrary(name string) (library, error) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	var text *C.char
	handle := C.open_library(c, &text)
	if handle == nil {
		return library{}, errors.New(C.GoString(text))
	}
	return library{handle}, nil
}

// symbol returns a function of the library.
func (l library) symbol(name string) (unsafe.Pointer, error) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	f := C.dlsym(l.handle, c)
	if f == nil {
		return nil, fmt.Errorf("it has no %s", name)
	}
	return f, nil
}

// Kernels returns how the library of kernels called name was built. The error says why that
// library, or cuBLASLt, which it opens itself, cannot be used.
func Kernels(name string) (string, error) {
	l, err := openLibrary(name)
	if err != nil {
		return "", err
	}
	missing, err := l.symbol("dynmo_cuda_missing")
	if err != nil {
		return "", fmt.Errorf("%s: it is no library of kernels of this version: %w", name, err)
	}
	text := "not built by build.sh cuda" // the emulator's
	if built, err := l.symbol("dynmo_cuda_built"); err == nil {
		text = C.GoString((*C.char)(built))
	}
	if why := C.call_string(missing); why != nil {
		return "", fmt.Errorf("%s: %s: %s", name, text, C.GoString(why))
	}
	return text, nil
}

// NCCL returns the version of the NCCL library called name: 10000·major + 100·minor + patch.
// Without a name it takes the library on the loader's path.
func NCCL(name string) (int, error) {
	if name == "" {
		name = "libnccl.so.2"
	}
	l, err := openLibrary(name)
	if err != nil {
		return 0, err
	}
	f, err := l.symbol("ncclGetVersion")
	if err != nil {
		return 0, err
	}
	var version C.int
	if status := C.call_int(f, &version); status != 0 {
		return 0, fmt.Errorf("ncclGetVersion: status %d", int(status))
	}
	return int(version), nil
}

// Probe asks the driver for this machine's GPUs. An error names the missing part: the driver's
// library, a working driver, or a GPU.
func Probe() (Driver, error) {
	l, err := openLibrary("libcuda.so.1")
	if err != nil {
		return Driver{}, fmt.Errorf("%w: %w", errNoDriver, err)
	}
	p := probe{l}
	var d Driver
	var version, count C.int
	for _, step := range []struct {
		name string
		call func(f unsafe.Pointer) C.int
	}{
		{"cuInit", func(f unsafe.Pointer) C.int { return C.call_flags(f, 0) }},
		{"cuDriverGetVersion", func(f unsafe.Pointer) C.int { return C.call_int(f, &version) }},
		{"cuDeviceGetCount", func(f unsafe.Pointer) C.int { return C.call_int(f, &count) }},
	} {
		if err := p.do(step.name, step.call); err != nil {
			return Driver{}, err
		}
	}
	d.Version = int(version)
	for ordinal := range count {
		name, err := p.name(ordinal)
		if err != nil {
			return d, err
		}
		d.GPUs = append(d.GPUs, name)
	}
	if count == 0 {
		return d, noGPU(moduleFolder)
	}
	return d, nil
}

// moduleFolder is there once the kernel module of the driver is loaded.
const moduleFolder = "/proc/driver/nvidia"

// noGPU returns the error of a driver that found no GPU. The driver's library may be on machines where its
// kernel module is not loaded. The user's choice of GPUs is named first.
func noGPU(module string) error {
	_, chosen := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	if _, err := os.Stat(module); err != nil && !chosen {
		return fmt.Errorf("libcuda.so.1 is here, but the kernel module of the NVIDIA driver is not loaded: no %s", module)
	}
	return errors.New("the NVIDIA driver is here, but no GPU that this process may use (CUDA_VISIBLE_DEVICES? the job's --gpus?)")
}

// noDevice is the driver's status CUDA_ERROR_NO_DEVICE.
const noDevice = 100

// probe calls functions of the driver by their names.
type probe struct{ library }

// do makes a call and explains its status.
func (p probe) do(name string, call func(f unsafe.Pointer) C.int) error {
	f, err := p.symbol(name)
	if err != nil {
		return fmt.Errorf("libcuda.so.1: %w", err)
	}
	switch status := call(f); status {
	case 0:
		return nil
	case noDevice:
		return noGPU(moduleFolder)
	default:
		return fmt.Errorf("the NVIDIA driver is here, but %s fails: %s", name, p.statusName(status))
	}
}

// statusName returns the driver's name for a status.
func (p probe) statusName(status C.int) string {
	var name *C.char
	f, err := p.symbol("cuGetErrorName")
	if err != nil || C.call_name(f, status, &name) != 0 || name == nil {
		return fmt.Sprintf("status %d", int(status))
	}
	return C.GoString(name)
}

// name returns the product name of a GPU.
func (p probe) name(ordinal C.int) (string, error) {
	var gpu C.int
	var text [256]C.char
	err := p.do("cuDeviceGet", func(f unsafe.Pointer) C.int { return C.call_get(f, &gpu, ordinal) })
	if err == nil {
		err = p.do("cuDeviceGetName", func(f unsafe.Pointer) C.int { return C.call_text(f, &text[0], C.int(len(text)), gpu) })
	}
	return C.GoString(&text[0]), err
}
