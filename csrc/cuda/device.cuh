/* Every kernel file begins with this: CUDA, or, with DYNMO_EMULATE, its stand-in
 * on the host (csrc/emulate), on which tests run where there is no GPU. Kernels
 * use only features of both: launches by LAUNCH, shared memory by SHARED and
 * DYNAMIC_SHARED, and PTX only in mma.cuh and hopper.cuh. */
#ifndef DYNMO_DEVICE_CUH
#define DYNMO_DEVICE_CUH

#include "dynmo_cuda.h"

#include <vector>

#ifdef DYNMO_EMULATE
#include "../emulate/device.h"
#else
#include <cuda_bf16.h>
#include <cuda_runtime.h>

/* LAUNCH(kernel, grid, block, bytes of dynamic shared memory, stream, operands…).
 * A kernel with template arguments stands in brackets: (kernel<float, 4>). */
#define LAUNCH(kernel, grid, block, bytes, stream, ...)                                                                \
	kernel<<<grid, block, bytes, static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__)

/* SHARED(float, tile, [32][33]); declares shared memory of a block. */
#define SHARED(type, name, ...) __shared__ type name __VA_ARGS__

/* DYNAMIC_SHARED(float, tile); points tile at the launch's dynamic shared memory. */
#define DYNAMIC_SHARED(type, name)                                                                                     \
	extern __shared__ __align__(128) unsigned char dynmo_dynamic_shared[];                                             \
	type *name = reinterpret_cast<type *>(dynmo_dynamic_shared)
#endif

using bf16 = __nv_bfloat16;

/* An element as float, and back, rounded to nearest even. */
__host__ __device__ inline float wide(float x) { return x; }
__host__ __device__ inline float wide(bf16 x) { return __bfloat162float(x); }
template <typename E> __host__ __device__ inline E narrow(float x);
template <> __host__ __device__ inline float narrow<float>(float x) { return x; }
template <> __host__ __device__ inline bf16 narrow<bf16>(float x) { return __float2bfloat16_rn(x); }

/* The kernels of attention that a rank uses where they can do the call. Bits depend on the path. */
enum attention_path { ATTENTION_PLAIN, ATTENTION_TILES, ATTENTION_HOPPER };

/* Sets *path to the fastest kernels that the library and the current device have.
 * DYNMO_CUDA_ATTENTION=plain, tiles or hopper chooses others. */
int32_t attention_choose(enum attention_path *path);
const char *attention_name(enum attention_path path);

/* Handles and workspace of one rank. */
struct dynmo_cuda {
	int32_t type;       /* DYNMO_CUDA_F32 or DYNMO_CUDA_BF16 */
	int processors;     /* multiprocessors of the device */
	int shared_bytes;   /* dynamic shared memory that a block may ask for */
	enum attention_path attention;
	void *work;         /* of the call that runs: calls are on one stream */
	size_t work_bytes;
	std::vector<void *> outgrown; /* earlier workspaces: kernels under way and graphs still use them */
	struct products *products; /* cuBLASLt: gemm.cu */
	struct rivals *rivals;     /* products of NVIDIA's libraries to compare with: rival.cu */
};

/* rivals_close takes null too. */
void rivals_close(struct rivals *r);

/* workspace sets *work to at least bytes of k's workspace, which grows if it
 * must. Its contents last for one call. */
int32_t workspace(dynmo_cuda *k, size_t bytes, void **work);

/* launched returns the error of the launches since the last call of it. */
inline int32_t launched() { return static_cast<int32_t>(cudaGetLastError()); }

/* Lets a kernel have bytes of dynamic shared memory, above the 48 KB that all have. */
template <typename K> int32_t allow_shared(K kernel, size_t bytes) {
	if (bytes <= 48 << 10) return 0;
	return static_cast<int32_t>(cudaFuncSetAttribute(
		reinterpret_cast<const void *>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

/* The functions of the table are called dynmo_cuda_NAME; table.cu lists them. */
#define DYNMO_CUDA_DECLARE(name, parameters, arguments) extern "C" int32_t dynmo_cuda_##name parameters;
DYNMO_CUDA_CALLS(DYNMO_CUDA_DECLARE)
#undef DYNMO_CUDA_DECLARE

/* BY_TYPE(k, f, operands…) returns f<float>(…) or f<bf16>(…), by E. */
#define BY_TYPE(k, f, ...) ((k)->type == DYNMO_CUDA_BF16 ? f<bf16>(__VA_ARGS__) : f<float>(__VA_ARGS__))

#endif
