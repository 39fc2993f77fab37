#include "../include/dynmo_nccl.h"

#include <stdlib.h>
#include <string.h>

#include "library.h"

/* Returns the configuration of a communicator. Its parts share nothing with it: kernels
 * of communicators that share resources wait for each other on the device. */
static struct nccl_config configuration(int32_t ctas) {
	int least = ctas == NCCL_UNSET ? NCCL_UNSET : 1;
	return (struct nccl_config){
	    NCCL_CONFIG_BYTES, NCCL_CONFIG_MAGIC, DYNMO_NCCL_SPLITS, 0, NCCL_UNSET, least, ctas, NULL, 0};
}

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

int32_t dynmo_nccl_begin(const void *id, int32_t rank, int32_t ranks, int32_t ctas, dynmo_nccl **k) {
	struct nccl_config config = configuration(ctas);
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

int32_t dynmo_nccl_split(dynmo_nccl *k, int32_t color, int32_t key, int32_t ctas, dynmo_nccl **part) {
	struct nccl_config config = configuration(ctas);
	*part = NULL;
	if (dynmo_nccl_library.split == NULL)
		return DYNMO_NCCL_ABSENT;
	if (color == DYNMO_NCCL_OUTSIDE)
		return begun(dynmo_nccl_library.split(k->comm, color, key, &k->none, &config));
	if ((*part = calloc(1, sizeof **part)) == NULL)
		return DYNMO_NCCL_MEMORY;
	return free_on_error(begun(dynmo_nccl_library.split(k->comm, color, key, &(*part)->comm, &config)), part);
}

int32_t dynmo_nccl_group_begin(void) {
	return dynmo_nccl_library.group_start();
}

int32_t dynmo_nccl_group_end(void) {
	return begun(dynmo_nccl_library.group_end());
}

int32_t dynmo_nccl_send(dynmo_nccl *k, const void *buf, int64_t bytes, int32_t to, void *stream) {
	return begun(dynmo_nccl_library.send(buf, (size_t)bytes, NCCL_CHAR, to, k->comm, stream));
}

int32_t dynmo_nccl_recv(dynmo_nccl *k, void *buf, int64_t bytes, int32_t from, void *stream) {
	return begun(dynmo_nccl_library.recv(buf, (size_t)bytes, NCCL_CHAR, from, k->comm, stream));
}

int32_t dynmo_nccl_allreduce(dynmo_nccl *k, const void *in, void *out, int64_t count, void *stream) {
	if (dynmo_nccl_library.all_reduce == NULL)
		return DYNMO_NCCL_ABSENT;
	return begun(dynmo_nccl_library.all_reduce(in, out, (size_t)count, NCCL_FLOAT, NCCL_SUM, k->comm, stream));
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
