/* The interface of the emulated libcuda.so.1 to its neighbours, beside the driver API:
 * kernels, cuBLASLt and NCCL put their work on its streams. */
#ifndef DYNMO_EMULATE_HOOKS_H
#define DYNMO_EMULATE_HOOKS_H

#pragma GCC visibility push(default)

#include <cuda.h>

/* Runs run(arg) in stream's worker thread once all earlier work of the stream is
 * done; it may block there. In a graph it runs many times. When it never will again,
 * and where this fails, drop(arg) is called if there is a drop. Returns a CUresult.
 * Counts as a launch. */
extern "C" int dynmo_emulate_enqueue(CUstream stream, void (*run)(void *), void *arg, void (*drop)(void *));

/* Called in a worker thread: its context fails with status from now on. */
extern "C" void dynmo_emulate_fail(int status);

/* Counts communicators that are there: one more, or one less. */
extern "C" void dynmo_emulate_communicators(int change);

/* All that the process holds at the moment. */
struct dynmo_emulate_holding {
	long long contexts, streams; /* but for null streams */
	long long bytes, pinned;     /* of devices, and of the host for them */
	long long communicators;
};
extern "C" void dynmo_emulate_held(struct dynmo_emulate_holding *held);

#pragma GCC visibility pop

#endif
