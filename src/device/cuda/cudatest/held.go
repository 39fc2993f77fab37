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

// Counts is what NCCL has done in a process: the most kernels and CTAs that one GPU had at
// one time, operations, and the groups that they were begun in. Since version 2.23 each
// group on a non-blocking communicator is a thread, also that of a single operation.
type Counts struct{ Kernels, CTAs, Operations, Groups int }

// Counted returns what has happened in this process; false where the driver is no stand-in.
func Counted() (Counts, bool) {
	var c C.struct_counts
	if C.counted(&c) == 0 {
		return Counts{}, false
	}
	return Counts{int(c.kernels), int(c.ctas), int(c.operations), int(c.groups)}, true
}
