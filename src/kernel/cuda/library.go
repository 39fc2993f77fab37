//go:build cuda && cgo

package cuda

/*
#cgo CFLAGS: -O2 -I${SRCDIR}/../../../csrc/include
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include "dynmo_cuda.h"

// load returns the table of the library at path. It writes why there is none
// into text, which has room for size bytes.
static const dynmo_cuda_table *load(const char *path, char *text, size_t size) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const dynmo_cuda_table *(*calls)(void) = 0;
	if (library)
		*(void **)&calls = dlsym(library, "dynmo_cuda_calls");
	if (!calls) {
		snprintf(text, size, "%s", dlerror());
		return 0;
	}
	return calls();
}
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// textBytes is room for any name or error that C writes.
const textBytes = 1024

// library opens Library once: a process has one.
var library = sync.OnceValues(func() (*C.dynmo_cuda_table, error) { return open(Library()) })

// open returns the table of the library at path, of the version that this
// binary calls.
func open(path string) (*C.dynmo_cuda_table, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var text [textBytes]C.char
	table := C.load(name, &text[0], textBytes)
	if table == nil {
		return nil, fmt.Errorf("cuda: %s: %w: build it with ./build.sh cuda, or say in %s where it is",
			path, errors.New(C.GoString(&text[0])), libraryVariable)
	}
	if table.version != C.DYNMO_CUDA_VERSION {
		return nil, fmt.Errorf("cuda: %s: version %d, but this binary wants version %d: build both from the same source",
			path, table.version, C.DYNMO_CUDA_VERSION)
	}
	return table, nil
}
