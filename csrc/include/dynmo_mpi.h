/* The C side of src/comm/mpi: non-blocking messages, groups, and other calls that
 * the gompi package lacks. This header is the boundary, complete.
 *
 * Groups and requests are small integers. Every function returns 0 or a status
 * that dynmo_mpi_error can name. One thread at a time calls; it need not stay
 * the same. No function keeps a pointer after it returns unless its name ends
 * in _begin: those keep the buffer until dynmo_mpi_test sets done. */
#ifndef DYNMO_MPI_H
#define DYNMO_MPI_H

#include <stdint.h>

/* Statuses below 0 are these; those above 0 are MPI's error codes. */
enum {
	DYNMO_MPI_THREADS = -1, /* the library cannot be called from changing threads */
	DYNMO_MPI_MEMORY  = -2, /* no memory for a group or a request */
	DYNMO_MPI_HANDLE  = -3, /* no such group or request */
	DYNMO_MPI_PMIX    = -4, /* MPI runs on no PMIx library that could be found */
	DYNMO_MPI_GOODBYE = -5, /* the launcher could not be told */
	DYNMO_MPI_STAY    = -6  /* no rank may end before the others */
};

/* Writes the name and version of the MPI library into text, which has room for size
 * bytes. It may be called before MPI runs. */
void dynmo_mpi_library(char *text, int32_t size);

/* The same of the system's PMIx library; nothing where there is none. */
void dynmo_mpi_pmix(char *text, int32_t size);

/* Starts MPI, thread-serialized or better, unless it runs already, and sets
 * *group to a duplicate of the world in which errors are returned. Collective. */
int32_t dynmo_mpi_init(int32_t *group);

/* Ends MPI, once all ranks are here. Collective. */
int32_t dynmo_mpi_finalize(void);

/* Returns 0 if a rank can end while others go on, once MPI runs. */
int32_t dynmo_mpi_can_leave(void);

/* Ends this rank's part in MPI, while others go on. The process ends next. */
int32_t dynmo_mpi_leave(void);

/* Ends the process if MPI has ended, and runs the handlers of atexit: MPICH takes leave of
 * its launcher in one. */
void dynmo_mpi_exit(int32_t status);

/* Rank in the group, and its size. */
int32_t dynmo_mpi_rank(int32_t group, int32_t *rank, int32_t *size);

/* Sets world[r] to the rank in the world of rank r of the group; world has
 * room for all. */
int32_t dynmo_mpi_world_ranks(int32_t group, int32_t *world);

/* Forms groups of the ranks with equal color, ordered by key. A rank with a
 * negative color is in none of them: its *part is -1. Collective. */
int32_t dynmo_mpi_split(int32_t group, int32_t color, int32_t key, int32_t *part);

/* Frees a group. Collective. */
int32_t dynmo_mpi_free(int32_t group);

/* Begins to send bytes (< 2^31) to a rank. With stamped, the stamp follows as
 * a second message with the same tag. */
int32_t dynmo_mpi_send_begin(int32_t group, const void *buf, int64_t bytes, int32_t to, int32_t tag,
                             int32_t stamped, double stamp, int32_t *request);

/* Begins to receive at most bytes (< 2^31) from a rank, and the stamp that
 * follows if stamped. */
int32_t dynmo_mpi_recv_begin(int32_t group, void *buf, int64_t bytes, int32_t from, int32_t tag,
                             int32_t stamped, int32_t *request);

/* Drives all transfers, once or until nanoseconds have passed, and sets *done
 * to 1 as soon as this one has ended, else to 0. Once it has, or an error is
 * returned, the request is no more. For a receive *bytes is set to the length of
 * the message, and in a stamped group *stamp to its stamp. */
int32_t dynmo_mpi_test(int32_t request, int64_t nanoseconds, int32_t *done, double *stamp, int64_t *bytes);

/* Exchanges `messages` messages of `bytes` bytes (< 2^31) with a peer, one at a
 * time, by blocking calls, for comparison with the messages above. The side that
 * is first sends out; the other side sends the same bytes back. *seconds is the
 * mean time of one message. Both ranks call it. */
int32_t dynmo_mpi_pingpong(int32_t group, int32_t peer, int32_t first, const void *out, void *in, int64_t bytes,
                           int32_t messages, double *seconds);

/* Memory that transfers may use without copying. */
int32_t dynmo_mpi_alloc(int64_t bytes, void **buf);
int32_t dynmo_mpi_release(void *buf);

/* Ends every rank of the world. It may return, and it may hang. */
int32_t dynmo_mpi_abort(int32_t status);

/* Writes the name of a status into text, which has room for size bytes. */
void dynmo_mpi_error(int32_t status, char *text, int32_t size);

#endif
