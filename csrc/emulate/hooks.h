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

/* A kernel of some CTAs that waits for other GPUs while it runs. */
struct dynmo_emulate_kernel {
	const char *name;        /* for the report of a hang */
	long long domain;        /* kernels of one domain run one after the other, as they are enqueued */
	int ctas;                /* that it holds while it runs */
	void (*run)(void *arg);  /* returns when the kernel is done */
	int (*gone)(void *arg);  /* whether it has been given up: it then waits for nothing */
	void (*fail)(void *arg); /* gives it up, because the device hangs */
	void (*drop)(void *arg); /* called in the end, also where it is not enqueued */
	void *arg;
};
extern "C" int dynmo_emulate_enqueue_kernel(CUstream stream, const struct dynmo_emulate_kernel *kernel);

/* To be called when a kernel has been given up. */
extern "C" void dynmo_emulate_wake(void);

/* Counts operations of NCCL, and the group, if they are one, that they were begun in. */
extern "C" void dynmo_emulate_grouped(long long operations);

/* Called in a worker thread: its context fails with status from now on. */
extern "C" void dynmo_emulate_fail(int status);

/* Counts communicators that are there: one more, or one less. */
extern "C" void dynmo_emulate_communicators(int change);

/* All that the process holds at the moment. */
struct dynmo_emulate_holding {
	long long contexts, streams; /* streams without null streams */
	long long bytes, pinned;     /* of devices, and of the host for them */
	long long communicators;
};
extern "C" void dynmo_emulate_held(struct dynmo_emulate_holding *held);

/* Counts of a process, from its start. */
struct dynmo_emulate_counts {
	long long kernels, ctas;      /* of NCCL, the most that one device had at one time */
	long long operations, groups; /* of NCCL; since version 2.23 each group on a non-blocking
	                                 communicator is a thread, also that of a single operation */
};
extern "C" void dynmo_emulate_counted(struct dynmo_emulate_counts *counts);

#pragma GCC visibility pop

#endif
