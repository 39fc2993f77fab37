/* The handles of a rank, its identity, and the names of statuses. */
#include <new>
#include <stdio.h>

#include "products.cuh"

enum { RIVAL_STATUS = 20000 }; /* cuSPARSE's statuses stand from here on */

#ifndef DYNMO_EMULATE
/* A kernel, to ask for which processor the library has code. */
static __global__ void probe() {}
#endif

/* architecture sets *sm to 10·major + minor of the code that runs here. */
static int32_t architecture(int *sm)
{
#ifdef DYNMO_EMULATE
	*sm = 0;
	return 0;
#else
	cudaFuncAttributes code;
	cudaError_t status = cudaFuncGetAttributes(&code, probe);
	if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorUnsupportedPtxVersion ||
		status == cudaErrorInvalidDeviceFunction) {
		cudaGetLastError(); /* forgets it */
		return DYNMO_CUDA_ARCH;
	}
	if (status == cudaSuccess) *sm = code.binaryVersion;
	return static_cast<int32_t>(status);
#endif
}

static int32_t measure(dynmo_cuda *k)
{
	int device;
	cudaError_t status = cudaGetDevice(&device);
	if (status == cudaSuccess)
		status = cudaDeviceGetAttribute(&k->processors, cudaDevAttrMultiProcessorCount, device);
	if (status == cudaSuccess)
		status = cudaDeviceGetAttribute(&k->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
	return static_cast<int32_t>(status);
}

int32_t dynmo_cuda_open(int32_t type, dynmo_cuda **k)
{
	*k = nullptr;
	dynmo_cuda *opened = new (std::nothrow) dynmo_cuda();
	if (!opened) return static_cast<int32_t>(cudaErrorMemoryAllocation);
	opened->type = type;
	int sm;
	int32_t status = architecture(&sm);
	if (!status) status = measure(opened);
	if (!status) status = attention_choose(&opened->attention);
	if (!status) status = products_open(opened);
	if (status)
		dynmo_cuda_close(opened);
	else
		*k = opened;
	return status;
}

int32_t dynmo_cuda_close(dynmo_cuda *k)
{
	if (!k) return 0;
	products_close(k->products);
	rivals_close(k->rivals);
	cudaError_t status = cudaFree(k->work);
	for (void *work : k->outgrown) {
		cudaError_t freed = cudaFree(work);
		if (status == cudaSuccess) status = freed;
	}
	delete k;
	return static_cast<int32_t>(status);
}

/* The names of the statuses that cuBLAS and cuSPARSE have alike, and of the
 * others: https://docs.nvidia.com/cuda/cublas, cublasStatus_t; cusparseStatus_t. */
static const char *products_status(int32_t status)
{
	switch (status) {
	case 1: return "not initialized";
	case 3: return "allocation failed";
	case 7: return "invalid value";
	case 8: return "architecture mismatch";
	case 11: return "mapping error";
	case 13: return "execution failed";
	case 14: return "internal error";
	case 15: return "not supported";
	case 16: return "licence error";
	}
	return "unknown status";
}

static const char *rival_status(int32_t status)
{
	static const char *names[] = {"not initialized", "allocation failed", "invalid value", "architecture mismatch",
		"mapping error", "execution failed", "internal error", "matrix type not supported", "zero pivot",
		"not supported", "insufficient resources"};
	return status >= 1 && status <= 11 ? names[status - 1] : "unknown status";
}

int32_t dynmo_cuda_error(int32_t status, char *text, int32_t size)
{
	if (status >= RIVAL_STATUS)
		snprintf(text, size, "cuSPARSE: %s (status %d)", rival_status(status - RIVAL_STATUS), status - RIVAL_STATUS);
	else if (status >= PRODUCTS_STATUS)
		snprintf(text, size, "cuBLASLt: %s (status %d)", products_status(status - PRODUCTS_STATUS),
			status - PRODUCTS_STATUS);
	else if (status >= 0)
		snprintf(text, size, "CUDA: %s (status %d)", cudaGetErrorString(static_cast<cudaError_t>(status)), status);
	else if (status == DYNMO_CUDA_ARCH)
		snprintf(text, size, "the library has no code for this GPU: build it where it will run");
	else if (status == DYNMO_CUDA_SHAPE)
		snprintf(text, size, "no kernel for this shape");
	else if (status == DYNMO_CUDA_ABSENT)
		snprintf(text, size, "%s", dynmo_cuda_missing() ? dynmo_cuda_missing() : "cuSPARSE (libcusparse.so.12 or .11) or the driver's cuTensorMapEncodeTiled cannot be used");
	else if (status == DYNMO_CUDA_PATH)
		snprintf(text, size, "DYNMO_CUDA_ATTENTION: want plain, tiles, or hopper on a GPU of compute capability 9.0 by nvcc 12");
	else
		snprintf(text, size, "unknown status %d", status);
	return 0;
}

/* The name of the current device. */
static int32_t device_name(char (&name)[256])
{
#ifdef DYNMO_EMULATE
	snprintf(name, sizeof name, "no GPU");
	return 0;
#else
	int device;
	cudaDeviceProp properties;
	cudaError_t status = cudaGetDevice(&device);
	if (status == cudaSuccess) status = cudaGetDeviceProperties(&properties, device);
	if (status == cudaSuccess) snprintf(name, sizeof name, "%s", properties.name);
	return static_cast<int32_t>(status);
#endif
}

int32_t dynmo_cuda_identity(dynmo_cuda *k, char *text, int32_t size)
{
	int sm;
	char name[256], products[64];
	int32_t status = architecture(&sm);
	if (!status) status = device_name(name);
	if (status) return status;
	products_name(products, sizeof products);
	const char *type = k->type == DYNMO_CUDA_BF16 ? "bf16" : "f32";
#ifdef DYNMO_EMULATE
	snprintf(text, size, "emulated cuda %s g++ %s %s attention %s %s", type, __VERSION__, products,
		attention_name(k->attention), name);
#else
	snprintf(text, size, "cuda %s sm_%d nvcc %d.%d %s attention %s %s", type, sm, __CUDACC_VER_MAJOR__,
		__CUDACC_VER_MINOR__, products, attention_name(k->attention), name);
#endif
	return 0;
}
