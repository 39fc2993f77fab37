/* The rivals of sparse products: what bench measures them against. Each lies in a slot,
 * with all that it was prepared with. */
#ifndef DYNMO_RIVAL_CUH
#define DYNMO_RIVAL_CUH

#include "device.cuh"

/* A product that is prepared. */
struct rival {
	virtual ~rival() {}
	virtual int32_t prepare(const dynmo_cuda *k, void *stream, const dynmo_cuda_rival *p) = 0;
	virtual int32_t run(void *stream) = 0;
};

/* new_sparse_rival returns a product of cuSPARSE's, null where there is no cuSPARSE;
 * new_dense_rival one of cuBLASLt's in TF32. */
struct rival *new_sparse_rival();
struct rival *new_dense_rival();

#endif
