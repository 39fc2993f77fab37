/* Compared with NCCL's own header when it is compiled, and good for nothing else: that
 * library.h agrees with it. src/comm/nccl does so in TestHeader. */
#include <nccl.h>

#include <assert.h>

#include "../include/dynmo_nccl.h"
#include "library.h"

#define SAME(condition) static_assert(condition, #condition)
#define MEMBER(mine, theirs)                                                                                           \
	SAME(offsetof(struct nccl_config, mine) == offsetof(ncclConfig_t, theirs));                                        \
	SAME(sizeof(((struct nccl_config *)0)->mine) == sizeof(((ncclConfig_t *)0)->theirs))

MEMBER(size, size);
MEMBER(magic, magic);
MEMBER(version, version);
MEMBER(blocking, blocking);
#if NCCL_VERSION_CODE >= DYNMO_NCCL_LIMITS
MEMBER(cluster, cgaClusterSize);
MEMBER(least, minCTAs);
MEMBER(most, maxCTAs);
MEMBER(network, netName);
#endif
#if NCCL_VERSION_CODE >= DYNMO_NCCL_SPLITS
MEMBER(share, splitShare);
SAME(sizeof(struct nccl_config) <= sizeof(ncclConfig_t));
SAME(DYNMO_NCCL_OUTSIDE == NCCL_SPLIT_NOCOLOR);
#endif

SAME(NCCL_UNSET == NCCL_CONFIG_UNDEF_INT);
SAME(sizeof(nccl_id) == sizeof(ncclUniqueId) && DYNMO_NCCL_ID_BYTES == NCCL_UNIQUE_ID_BYTES);
SAME((int)NCCL_SUCCESS == (int)ncclSuccess && (int)NCCL_IN_PROGRESS == (int)ncclInProgress);
SAME((int)NCCL_CHAR == (int)ncclChar && (int)NCCL_FLOAT == (int)ncclFloat && (int)NCCL_SUM == (int)ncclSum);
SAME(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int) && sizeof(ncclRedOp_t) == sizeof(int));
SAME(NCCL_VERSION(2, 14, 0) == DYNMO_NCCL_WANTED && NCCL_VERSION(2, 17, 0) == DYNMO_NCCL_LIMITS);
SAME(NCCL_VERSION(2, 18, 0) == DYNMO_NCCL_SPLITS);

/* The functions take what is passed to them; NCCL's own pointer types are all void *. */
static ncclResult_t (*const version)(int *) = ncclGetVersion;
static ncclResult_t (*const init)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *) = ncclCommInitRankConfig;
static ncclResult_t (*const state)(ncclComm_t, ncclResult_t *) = ncclCommGetAsyncError;
static ncclResult_t (*const finish)(ncclComm_t) = ncclCommFinalize;
#if NCCL_VERSION_CODE >= DYNMO_NCCL_SPLITS
static ncclResult_t (*const split)(ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *) = ncclCommSplit;
#endif
