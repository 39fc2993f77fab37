//go:build cuda && cgo

package cudatest

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>

struct holding { long long contexts, streams, bytes, pinned, communicators; };

// held asks the stand-in for the driver, which is in the process, what the process holds.
static int held(struct holding *h) {
	void (*ask)(struct holding *) = (void (*)(struct holding *))dlsym(RTLD_DEFAULT, "dynmo_emulate_held");
	if (ask == 0)
		return 0;
	ask(h);
	return 1;
}
*/
import "C"

// Holding is what a process holds of GPUs.
type Holding struct {
	Contexts, Streams int
	Bytes, Pinned     int // of GPUs, and of the host for them
	Communicators     int
}

// Held returns what this process holds; false where the driver is no stand-in.
func Held() (Holding, bool) {
	var h C.struct_holding
	if C.held(&h) == 0 {
		return Holding{}, false
	}
	return Holding{int(h.contexts), int(h.streams), int(h.bytes), int(h.pinned), int(h.communicators)}, true
}
