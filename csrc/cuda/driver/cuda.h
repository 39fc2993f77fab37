/* The driver's header as gorgonia.org/cu v0.9.6 expects it: with the calls of
 * CUDA 11. From CUDA 13 on some names mean newer calls with other operands, and
 * targets that CUDA 13 cannot compile for are gone. This header gives these names
 * their old meaning. Only the Go side includes it in front of the real header. */
#ifndef DYNMO_DRIVER_CUDA_H
#define DYNMO_DRIVER_CUDA_H

#include_next <cuda.h>

#if CUDA_VERSION >= 13000

static inline CUresult dynmo_ctx_create(CUcontext *context, unsigned flags, CUdevice device) {
	return cuCtxCreate(context, NULL, flags, device);
}
#undef cuCtxCreate
#define cuCtxCreate dynmo_ctx_create

static inline CUmemLocation dynmo_location(CUdevice device) {
	CUmemLocation place = {device < 0 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE, device < 0 ? 0 : device};
	return place;
}

static inline CUresult dynmo_mem_advise(CUdeviceptr at, size_t bytes, CUmem_advise advice, CUdevice device) {
	return cuMemAdvise(at, bytes, advice, dynmo_location(device));
}
#undef cuMemAdvise
#define cuMemAdvise dynmo_mem_advise

static inline CUresult dynmo_mem_prefetch(CUdeviceptr at, size_t bytes, CUdevice device, CUstream stream) {
	return cuMemPrefetchAsync(at, bytes, dynmo_location(device), 0, stream);
}
#undef cuMemPrefetchAsync
#define cuMemPrefetchAsync dynmo_mem_prefetch

static inline CUresult dynmo_graph_depend(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n) {
	return cuGraphAddDependencies(graph, from, to, NULL, n);
}
#undef cuGraphAddDependencies
#define cuGraphAddDependencies dynmo_graph_depend

static inline CUresult dynmo_graph_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *n) {
	return cuGraphGetEdges(graph, from, to, NULL, n);
}
#undef cuGraphGetEdges
#define cuGraphGetEdges dynmo_graph_edges

#define CU_TARGET_COMPUTE_30 30
#define CU_TARGET_COMPUTE_32 32
#define CU_TARGET_COMPUTE_35 35
#define CU_TARGET_COMPUTE_37 37
#define CU_TARGET_COMPUTE_50 50
#define CU_TARGET_COMPUTE_52 52
#define CU_TARGET_COMPUTE_53 53
#define CU_TARGET_COMPUTE_60 60
#define CU_TARGET_COMPUTE_61 61
#define CU_TARGET_COMPUTE_62 62

#endif

#endif
