/* The part of NCCL's interface that is used. It has been the same since version
 * 2.14, so NCCL's own header is not needed to build. */
#ifndef DYNMO_NCCL_LIBRARY_H
#define DYNMO_NCCL_LIBRARY_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7 }; /* of ncclResult_t, an int */
enum { NCCL_CHAR = 0, NCCL_FLOAT = 7 };          /* of ncclDataType_t, an int */
enum { NCCL_SUM = 0 };                           /* of ncclRedOp_t, an int */

typedef struct {
	char internal[128];
} nccl_id;

/* ncclConfig_t as version 2.18 has it; later versions have added members behind. A
 * library copies as many of size bytes as it knows, and gives its defaults to the members
 * that the version is too old for: those from 2.17 unless it is at least 21700. Before
 * 2.17 there was nothing behind blocking, before 2.18 no splitShare. conform.c compares
 * it with a real header. */
struct nccl_config {
	size_t size;
	unsigned int magic; /* NCCL_CONFIG_MAGIC */
	unsigned int version;
	int blocking;
	int cluster; /* cgaClusterSize */
	int least;   /* minCTAs */
	int most;    /* maxCTAs */
	const char *network;
	int share; /* splitShare: parts of this communicator share its resources */
};

/* The size ends with the last member. The padding behind it is trafficClass in 2.26. */
#define NCCL_CONFIG_BYTES (offsetof(struct nccl_config, share) + sizeof(int))
#define NCCL_CONFIG_MAGIC 0xcafebeefu
#define NCCL_UNSET INT_MIN /* of a member */

/* A communicator. NCCL may write the pointer at any time until the communicator is
 * ready, so this never moves. */
struct dynmo_nccl {
	void *comm; /* NULL for a part that is not ready */
	void *none; /* where NCCL writes that this rank is in no part */
};

/* X(result, member, symbol, parameters): the functions of all versions from 2.14. */
#define NCCL_FUNCTIONS(X)                                                                                              \
	X(int, get_version, "ncclGetVersion", (int *))                                                                     \
	X(const char *, error_string, "ncclGetErrorString", (int))                                                         \
	X(const char *, last_error, "ncclGetLastError", (void *))                                                          \
	X(int, unique_id, "ncclGetUniqueId", (nccl_id *))                                                                  \
	X(int, init, "ncclCommInitRankConfig", (void **, int, nccl_id, int, void *))                                       \
	X(int, async_error, "ncclCommGetAsyncError", (void *, int *))                                                      \
	X(int, send, "ncclSend", (const void *, size_t, int, int, void *, void *))                                         \
	X(int, recv, "ncclRecv", (void *, size_t, int, int, void *, void *))                                               \
	X(int, group_start, "ncclGroupStart", (void))                                                                      \
	X(int, group_end, "ncclGroupEnd", (void))                                                                          \
	X(int, finalize, "ncclCommFinalize", (void *))                                                                     \
	X(int, destroy, "ncclCommDestroy", (void *))                                                                       \
	X(int, abort, "ncclCommAbort", (void *))

/* The same for functions that another library in its place may lack; NULL where one is missing. */
#define NCCL_LATER(X)                                                                                                  \
	X(int, split, "ncclCommSplit", (void *, int, int, void **, void *)) /* 2.18 */                                     \
	X(int, all_reduce, "ncclAllReduce", (const void *, void *, size_t, int, int, void *, void *)) /* 2.0 */

#define NCCL_MEMBER(result, member, symbol, parameters) result(*member) parameters;
struct library {
	NCCL_FUNCTIONS(NCCL_MEMBER)
	NCCL_LATER(NCCL_MEMBER)
};
#undef NCCL_MEMBER

/* Filled in by dynmo_nccl_open. */
extern struct library dynmo_nccl_library;

#endif
