/* The table of calls, and what a rank keeps between them. */
#include "device.cuh"

#define ENTRY(name, parameters, arguments) dynmo_cuda_##name,
static const dynmo_cuda_table table = {DYNMO_CUDA_VERSION, DYNMO_CUDA_CALLS(ENTRY)};
#undef ENTRY

extern "C" __attribute__((visibility("default"))) const dynmo_cuda_table *dynmo_cuda_calls(void) { return &table; }

int32_t workspace(dynmo_cuda *k, size_t bytes, void **work) {
	if (bytes > k->work_bytes) {
		cudaError_t status = cudaFree(k->work); /* waits for whoever uses it */
		k->work = nullptr;
		k->work_bytes = 0;
		if (status == cudaSuccess) status = cudaMalloc(&k->work, bytes);
		if (status != cudaSuccess) return static_cast<int32_t>(status);
		k->work_bytes = bytes;
	}
	*work = k->work;
	return 0;
}
