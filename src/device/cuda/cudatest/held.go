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

struct counts { long long kernels, ctas, operations, groups; };

// counted asks it what has happened.
static int counted(struct counts *c) {
	void (*ask)(struct counts *) = (void (*)(struct counts *))dlsym(RTLD_DEFAULT, "dynmo_emulate_counted");
	if (ask == 0)
		return 0;
	ask(c);
	return 1;
}
*/
import "C"

// Holding counts the resources of GPUs that a process has.
type Holding struct {
	Contexts, Streams int
	Bytes, Pinned     int // bytes of GPU memory, and of pinned host memory
	Communicators     int
}

// Held returns the resources of this process; false if the driver is not the emulator.
func Held() (Holding, bool) {
	var h C.struct_holding
	if C.held(&h) == 0 {
		return Holding{}, false
	}
	return Holding{int(h.contexts), int(h.streams), int(h.bytes), int(h.pinned), int(h.communicators)}, true
}

// Counts is the activity of NCCL in a process. Kernels and CTAs are the largest numbers on one GPU
// at one time. Operations and Groups count operations and their groups. Since version 2.23 each
// group on a non-blocking communicator is a thread, even for a single operation.
type Counts struct{ Kernels, CTAs, Operations, Groups int }

// Counted returns the activity in this process; false if the driver is not the emulator.
func Counted() (Counts, bool) {
	var c C.struct_counts
	if C.counted(&c) == 0 {
		return Counts{}, false
	}
	return Counts{int(c.kernels), int(c.ctas), int(c.operations), int(c.groups)}, true
}
