//go:build blas && cgo

package cpu

/*
#cgo CFLAGS: -O3 -I${SRCDIR}/../../../csrc/include
#cgo !blaslibs LDFLAGS: -lopenblas
#cgo LDFLAGS: -lm -ldl
#include "dynmo_cpu.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"

	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// pathVariable names the environment variable that chooses the path.
const pathVariable = "DYNMO_ISA"

// paths are the names of the instruction-set paths, by C's number of the path. Each path needs more
// features of the processor than the path before.
var paths = [C.DYNMO_CPU_PATHS]string{
	C.DYNMO_CPU_GENERIC: "generic",
	C.DYNMO_CPU_AVX2:    "avx2",
	C.DYNMO_CPU_AVX512:  "avx512",
}

// backend is the C backend of one rank. It keeps the largest workspace that a
// call has needed so far.
type backend struct {
	kernel.Calls
	path string
	way  string // how dense products are made, " bf16 oneDNN 2.6.3"; "": by the BLAS
	c    *C.dynmo_cpu
	work []float32
}

// Built says whether this binary holds the backend.
const Built = true

// New returns the backend on the best path that this processor has, or on the path that DYNMO_ISA
// names (generic, avx2, avx512). threads, at least 1, is the number of threads that share the work of
// a call, including the caller. The other threads sleep between calls, and end at Close. The error
// names a path that is unknown or missing, or says that the system gives no threads.
//
// oneDNN makes products with weights where it is installed and is known to be faster than the BLAS: fewRows
// says on which processors, and up to how many rows.
func New(threads int) (kernel.Backend, error) {
	k, err := openBackend(threads)
	if err != nil {
		return nil, err
	}
	f := fewRows(k.path)
	if f.forward == 0 {
		return k, nil
	}
	if err := openOneDNN(true); err == nil {
		return k.multiply(C.DYNMO_CPU_FLOATS, oneDNN(), f)
	} else if wanted := os.Getenv(libraryVariable); wanted != "" && wanted != "none" {
		k.Close()
		return nil, fmt.Errorf("cpu: %s=%s: %w (none makes all products by the BLAS)", libraryVariable, wanted, err)
	}
	return k, nil
}

// libraryVariable names the environment variable with oneDNN's file, or "none".
const libraryVariable = "DYNMO_DNNL_LIBRARY"

// openOneDNN opens oneDNN, once in a process, for products of bfloat16 or, wide, of float32.
func openOneDNN(wide bool) error {
	if problem := C.dynmo_cpu_dnnl_open(); problem != nil {
		return errors.New(C.GoString(problem))
	}
	if C.dynmo_cpu_dnnl_multiplies(truth(wide)) == 0 {
		return fmt.Errorf("%s makes no such products with these instructions of the CPU (DNNL_MAX_CPU_ISA limits them)", C.GoString(C.dynmo_cpu_dnnl_name()))
	}
	return nil
}

// oneDNN returns what the open oneDNN adds to an Identity.
func oneDNN() string { return " " + C.GoString(C.dynmo_cpu_dnnl_name()) }

// NewBoth returns a backend with all products by the BLAS, and one with all products with weights that are
// worth a call by oneDNN: for measurements. The error says that oneDNN is missing.
func NewBoth(threads int) (blas, onednn kernel.Backend, err error) {
	if err := openOneDNN(true); err != nil {
		return nil, nil, fmt.Errorf("no oneDNN: %w", err)
	}
	one, err := openBackend(threads)
	if err != nil {
		return nil, nil, err
	}
	other, err := openBackend(threads)
	if err != nil {
		one.Close()
		return nil, nil, err
	}
	if onednn, err = other.multiply(C.DYNMO_CPU_FLOATS, oneDNN(), few{math.MaxInt32, math.MaxInt32}); err != nil {
		one.Close()
	}
	return one, onednn, err
}

// few is the most rows of products with weights, forward and backward, that oneDNN makes.
type few struct{ forward, backward int }

// fewRows returns what oneDNN makes faster than the BLAS on this processor. It is a fixed table: a measurement
// could choose otherwise at the next start, and bits would change. dynmo bench gemm --rows measures its lines:
//
//	Zen 5, avx512, OpenBLAS 0.3.21 (Cooperlake), oneDNN 2.6.3: forward products of 16, 64, 256, 512, 1024 and
//	2048 rows are 1.43 to 1.97, 1.16 to 1.30, 1.05 to 1.14, 1.04 to 1.07, 1.02 to 1.05 and 1.02 to 1.04 times
//	as fast, backward ones of 64, 256, 512 and 1024 rows 1.15 to 1.28, 0.98 to 1.13, 0.95 to 1.10 and 0.95 to 1.06
func fewRows(path string) few {
	if path == "avx512" && C.dynmo_cpu_is_zen5() != 0 {
		return few{forward: math.MaxInt32, backward: 512}
	}
	return few{}
}

// openBackend returns the backend with all products by the BLAS.
func openBackend(threads int) (*backend, error) {
	available := availablePaths()
	if path := wantedPath(available); slices.Contains(available, path) {
		return newBackend(path, threads)
	}
	return nil, fmt.Errorf("cpu: %s=%s: want one of %s", pathVariable, os.Getenv(pathVariable), strings.Join(available, ", "))
}

// NewRounded is New with dense products whose operands are rounded to bfloat16 (kernel.Backend.Products).
// oneDNN makes them. Emulated products are made by the BLAS from rounded copies: as slow as those of New, on
// every processor. The error says what is missing: oneDNN, or the processor's instructions.
func NewRounded(threads int, emulated bool) (kernel.Backend, error) {
	if !emulated {
		if C.dynmo_cpu_has_bfloat16() == 0 {
			return nil, errors.New("this CPU has no instructions for bfloat16 (avx512_bf16)")
		}
		if err := openOneDNN(false); err != nil {
			return nil, fmt.Errorf("products in bfloat16 need oneDNN (Debian: libdnnl2, from 13 on libdnnl3.6): %w", err)
		}
	}
	k, err := openBackend(threads)
	if err != nil {
		return nil, err
	}
	k.RoundProducts(tensor.BF16)
	if emulated {
		return k.multiply(C.DYNMO_CPU_EMULATED, emulation, few{})
	}
	return k.multiply(C.DYNMO_CPU_ROUNDED, " bf16"+oneDNN(), few{})
}

const emulation = " bf16 emulated"

// multiply makes dense products in a way of C's, and adds its name to the Identity.
func (k *backend) multiply(how C.int32_t, way string, f few) (kernel.Backend, error) {
	if status := C.dynmo_cpu_multiply(k.c, how, C.int64_t(f.forward), C.int64_t(f.backward)); status != C.DYNMO_CPU_OK {
		k.Close()
		return nil, fmt.Errorf("cpu: %s", C.GoString(C.dynmo_cpu_status_name(status)))
	}
	k.way = way
	return k, nil
}

// Hold begins or ends a time in which rounded and packed weights are kept: see kernel.Hold.
func (k *backend) Hold(hold bool) { C.dynmo_cpu_hold(k.c, truth(hold)) }

// NewForTexts is New for texts that grow by a token at a time: products of one row are products of a
// vector. They are faster than New's, and differ from these in their last bits.
func NewForTexts(threads int) (kernel.Backend, error) {
	k, err := New(threads)
	if err == nil {
		k.(*backend).useVectors()
	}
	return k, err
}

// useVectors makes products of one row products of a vector.
func (k *backend) useVectors() { C.dynmo_cpu_use_vectors(k.c) }

// wantedPath returns the path that New takes: the path in DYNMO_ISA, else the best.
func wantedPath(available []string) string {
	if path := os.Getenv(pathVariable); path != "" {
		return path
	}
	return available[len(available)-1]
}

// Identity returns everything but the binary that the bits depend on: the path,
// the linked BLAS, and oneDNN.
func (k *backend) Identity() string {
	return strings.TrimSpace("cpu " + k.path + " " + blas() + k.way)
}

// blas returns the linked library's description of itself, "" if none. It is
// asked once: OpenBLAS puts its answer together in one buffer for all threads.
var blas = sync.OnceValue(func() string { return C.GoString(C.dynmo_cpu_blas_name()) })

// BLAS returns the linked library's name and version and, where it tells, the type of core
// that its kernels are for: "OpenBLAS 0.3.21 SkylakeX".
func (*backend) BLAS() string { return shortName(blas(), C.GoString(C.dynmo_cpu_blas_core())) }

// shortName returns the first two words of a library's description of itself, and the core.
func shortName(description, core string) string {
	words := strings.Fields(description)
	return strings.TrimSpace(strings.Join(words[:min(2, len(words))], " ") + " " + core)
}

// newBackend returns the backend on one of availablePaths.
func newBackend(path string, threads int) (*backend, error) {
	if threads < 1 {
		panic("cpu: fewer than one thread")
	}
	c := C.dynmo_cpu_open(C.int32_t(slices.Index(paths[:], path)), C.int32_t(threads))
	if c == nil {
		return nil, fmt.Errorf("cpu: the system does not give %d threads", threads)
	}
	k := &backend{path: path, c: c}
	k.Calls = kernel.NewCalls(tensor.F32, tensor.Host, false, k.do)
	return k, nil
}

// Close ends the backend's threads. The backend is of no use afterwards.
func (k *backend) Close() error {
	C.dynmo_cpu_close(k.c)
	k.c = nil
	return nil
}

// availablePaths returns the instruction-set paths that this processor has, the best last.
func availablePaths() []string {
	var available []string
	for number, name := range paths {
		if C.dynmo_cpu_has(C.int32_t(number)) != 0 {
			available = append(available, name)
		}
	}
	return available
}

// Name returns "cpu".
func (*backend) Name() string { return "cpu" }

// Path returns the backend's path: one of availablePaths.
func (k *backend) Path() string { return k.path }

// workspace returns memory of at least n floats, for one call.
func (k *backend) workspace(n C.int64_t) *C.float {
	if int64(len(k.work)) < int64(n) {
		k.work = make([]float32, n)
	}
	return (*C.float)(&k.work[0])
}
