#include "../include/dynmo_nccl.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

/* The beginning of ncclConfig_t, as in version 2.14. A library copies size bytes,
 * and gives later members their defaults. */
struct config {
	size_t size;
	unsigned int magic;
	unsigned int version;
	int blocking;
	int cluster; /* was padding; INT_MIN is "not set" */
};

/* A call that is in progress has no error. */
static int32_t begun(int rc) {
	return rc == NCCL_IN_PROGRESS ? 0 : rc;
}

int32_t dynmo_nccl_id(void *id) {
	return dynmo_nccl_library.unique_id(id);
}

/* Returns rc; unless it is 0, frees *k and clears it. */
static int32_t free_on_error(int32_t rc, dynmo_nccl **k) {
	if (rc != 0) {
		free(*k);
		*k = NULL;
	}
	return rc;
}

int32_t dynmo_nccl_begin(const void *id, int32_t rank, int32_t ranks, dynmo_nccl **k) {
	struct config config = {sizeof config, 0xcafebeef, DYNMO_NCCL_WANTED, 0, INT_MIN};
	nccl_id all;
	memcpy(&all, id, sizeof all);
	if ((*k = calloc(1, sizeof **k)) == NULL)
		return DYNMO_NCCL_MEMORY;
	return free_on_error(begun(dynmo_nccl_library.init(&(*k)->comm, ranks, all, rank, &config)), k);
}

int32_t dynmo_nccl_ready(const dynmo_nccl *k, int32_t *ready) {
	void *comm = __atomic_load_n(&k->comm, __ATOMIC_ACQUIRE);
	int state = NCCL_IN_PROGRESS;
	int rc = comm == NULL ? NCCL_SUCCESS : dynmo_nccl_library.async_error(comm, &state);
	*ready = rc == NCCL_SUCCESS && state == NCCL_SUCCESS;
	return rc != NCCL_SUCCESS ? rc : begun(state);
}

/* Without a configuration of its own a part is non-blocking as k is. */
int32_t dynmo_nccl_split(dynmo_nccl *k, int32_t color, int32_t key, dynmo_nccl **part) {
	if (dynmo_nccl_library.split == NULL)
		return DYNMO_NCCL_ABSENT;
	if ((*part = calloc(1, sizeof **part)) == NULL)
		return DYNMO_NCCL_MEMORY;
	return free_on_error(begun(dynmo_nccl_library.split(k->comm, color, key, &(*part)->comm, NULL)), part);
}

int32_t dynmo_nccl_shrink(dynmo_nccl *k, int32_t without, dynmo_nccl **rest) {
	if (dynmo_nccl_library.shrink == NULL)
		return DYNMO_NCCL_ABSENT;
	if ((*rest = calloc(1, sizeof **rest)) == NULL)
		return DYNMO_NCCL_MEMORY;
	int excluded = without;
	return free_on_error(begun(dynmo_nccl_library.shrink(k->comm, &excluded, 1, &(*rest)->comm, NULL, 0)), rest);
}

int32_t dynmo_nccl_send(dynmo_nccl *k, const void *buf, int64_t bytes, int32_t to, void *stream) {
	return begun(dynmo_nccl_library.send(buf, (size_t)bytes, NCCL_CHAR, to, k->comm, stream));
}

int32_t dynmo_nccl_recv(dynmo_nccl *k, void *buf, int64_t bytes, int32_t from, void *stream) {
	return begun(dynmo_nccl_library.recv(buf, (size_t)bytes, NCCL_CHAR, from, k->comm, stream));
}

int32_t dynmo_nccl_self(dynmo_nccl *k, void *dst, const void *src, int64_t bytes, int32_t rank, void *stream) {
	int32_t rc = dynmo_nccl_library.group_start();
	if (rc != 0)
		return rc;
	rc = dynmo_nccl_send(k, src, bytes, rank, stream);
	if (rc == 0)
		rc = dynmo_nccl_recv(k, dst, bytes, rank, stream);
	int32_t end = begun(dynmo_nccl_library.group_end()); /* a group ends whatever has failed */
	return rc != 0 ? rc : end;
}

int32_t dynmo_nccl_finish(dynmo_nccl *k) {
	return begun(dynmo_nccl_library.finalize(k->comm));
}

int32_t dynmo_nccl_destroy(dynmo_nccl *k) {
	int32_t rc = begun(dynmo_nccl_library.destroy(k->comm));
	free(k);
	return rc;
}

int32_t dynmo_nccl_abort(dynmo_nccl *k) {
	void *comm = __atomic_load_n(&k->comm, __ATOMIC_ACQUIRE);
	if (comm == NULL)
		return 0; /* a part that is not ready: NCCL may yet write here, so k stays */
	int32_t rc = begun(dynmo_nccl_library.abort(comm));
	free(k);
	return rc;
}
