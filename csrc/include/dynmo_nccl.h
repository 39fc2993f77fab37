/* The C side of src/comm/nccl: messages between GPUs by NCCL, which is opened at
 * run time. This header is the boundary, complete.
 *
 * A communicator works on the CUDA context that is current where it begins; a
 * stream is a CUstream. All communicators are non-blocking: a call only begins
 * its work, and dynmo_nccl_ready reports when NCCL has done its part on the host.
 * Until then the only call allowed for the communicator is dynmo_nccl_abort. The
 * work of a message on the GPU follows its stream.
 *
 * Every function returns 0 or a status that dynmo_nccl_error can name. Before all
 * other calls dynmo_nccl_open must have returned 0. One thread makes all calls for
 * a communicator, from dynmo_nccl_begin to dynmo_nccl_destroy or _abort. That thread
 * makes calls for no other communicator: up to version 2.26 a group's state belongs
 * to its thread, and NCCL's helper thread works on the state. A part that was split
 * off uses its parent's thread until both are ready, and then a thread of its own. */
#ifndef DYNMO_NCCL_H
#define DYNMO_NCCL_H

#include <stdint.h>

/* Statuses below 0 are these; those above 0 are NCCL's results. */
enum {
	DYNMO_NCCL_LIBRARY = -1, /* the library cannot be opened, or is none */
	DYNMO_NCCL_OLD     = -2, /* it is older than DYNMO_NCCL_WANTED */
	DYNMO_NCCL_ABSENT  = -3, /* it is too old for this one call */
	DYNMO_NCCL_MEMORY  = -4  /* no memory for a communicator */
};

/* Versions in NCCL's own code: the first with non-blocking communicators, with a limit of
 * CTAs for a communicator, and with splits. */
#define DYNMO_NCCL_WANTED 21400
#define DYNMO_NCCL_LIMITS 21700
#define DYNMO_NCCL_SPLITS 21800

#define DYNMO_NCCL_ID_BYTES 128
#define DYNMO_NCCL_OUTSIDE (-1)

typedef struct dynmo_nccl dynmo_nccl; /* a communicator, of one rank */

/* Opens the library that DYNMO_NCCL_LIBRARY in the environment names, or else
 * libnccl.so.2, once per process. *version is set to the library's version code
 * (major·10000 + minor·100 + patch) if that is known, else to 0. */
int32_t dynmo_nccl_open(int32_t *version);

/* Writes the name of a status into text, which has room for size bytes; for a
 * communicator (or null) also NCCL's last complaint. Needs no open. */
void dynmo_nccl_error(const dynmo_nccl *k, int32_t status, char *text, int32_t size);

/* Fills in DYNMO_NCCL_ID_BYTES by which the ranks of one communicator find each
 * other: one rank asks for it and sends it to the others. */
int32_t dynmo_nccl_id(void *id);

/* Begins a communicator whose kernels take at most ctas blocks each, INT_MIN for NCCL's own
 * choice, if the library is of version 2.17 or later. It is ready when all its ranks have begun theirs. */
int32_t dynmo_nccl_begin(const void *id, int32_t rank, int32_t ranks, int32_t ctas, dynmo_nccl **k);

/* Sets *ready to 1 if the call last begun is done, else to 0. Returns the
 * communicator's error, also one that has struck a message under way. */
int32_t dynmo_nccl_ready(const dynmo_nccl *k, int32_t *ready);

/* Begins a communicator of the ranks with equal color >= 0, ordered by key (since 2.18),
 * with resources of its own; with DYNMO_NCCL_OUTSIDE as color this rank is in none, and
 * *part is NULL. It is ready once k is ready again. Collective over k. */
int32_t dynmo_nccl_split(dynmo_nccl *k, int32_t color, int32_t key, int32_t ctas, dynmo_nccl **part);

/* Messages that are enqueued between group_begin and group_end, all of one communicator
 * and on one stream, become one kernel. The calls between do nothing yet. */
int32_t dynmo_nccl_group_begin(void);
int32_t dynmo_nccl_group_end(void);

/* Enqueue a message of some bytes (at least 1) on a stream. */
int32_t dynmo_nccl_send(dynmo_nccl *k, const void *buf, int64_t bytes, int32_t to, void *stream);
int32_t dynmo_nccl_recv(dynmo_nccl *k, void *buf, int64_t bytes, int32_t from, void *stream);

/* Enqueues NCCL's own sum of count float32 of all ranks on a stream. Collective. */
int32_t dynmo_nccl_allreduce(dynmo_nccl *k, const void *in, void *out, int64_t count, void *stream);

/* Begins to end a communicator. Once it is ready again, dynmo_nccl_destroy frees
 * it. Collective. */
int32_t dynmo_nccl_finish(dynmo_nccl *k);
int32_t dynmo_nccl_destroy(dynmo_nccl *k);

/* Gives up all messages under way, on the GPU too, and frees the communicator. It may
 * wait for other work of the GPU to end. */
int32_t dynmo_nccl_abort(dynmo_nccl *k);

#endif
