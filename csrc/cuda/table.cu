/* The table of calls, and the workspace of a rank. */
#include "device.cuh"

#include <algorithm>

#define ENTRY(name, parameters, arguments) dynmo_cuda_##name,
static const dynmo_cuda_table table = {DYNMO_CUDA_VERSION, DYNMO_CUDA_CALLS(ENTRY)};
#undef ENTRY

extern "C" __attribute__((visibility("default"))) const dynmo_cuda_table *dynmo_cuda_calls(void) { return &table; }

int32_t workspace(dynmo_cuda *k, size_t bytes, void **work) {
	if (bytes > k->work_bytes) {
		size_t larger_bytes = std::max(bytes, 2 * k->work_bytes); /* all outgrown ones together are smaller */
		void *larger;
		cudaError_t status = cudaMalloc(&larger, larger_bytes);
		if (status != cudaSuccess) {
			cudaGetLastError(); /* or the next launch would seem to have failed */
			return static_cast<int32_t>(status);
		}
		if (k->work) k->outgrown.push_back(k->work);
		k->work = larger;
		k->work_bytes = larger_bytes;
	}
	*work = k->work;
	return 0;
}
