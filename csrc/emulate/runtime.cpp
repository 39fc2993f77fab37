/* The part of CUDA's runtime API that csrc/cuda uses, over the emulated driver. */
#include <map>
#include <mutex>

#include "device.h"
#include "hooks.h"

namespace {

thread_local cudaError_t last = cudaSuccess;

/* Remembers an error for cudaGetLastError. Codes that both APIs have are equal. */
cudaError_t keep(int status)
{
	if (status != 0)
		last = static_cast<cudaError_t>(status);
	return static_cast<cudaError_t>(status);
}

/* The runtime makes device 0's primary context current where there is none. */
int have_context()
{
	CUcontext context = nullptr;
	int status = cuCtxGetCurrent(&context);
	if (status != 0 || context)
		return status;
	status = cuInit(0);
	if (status == 0)
		status = cuDevicePrimaryCtxRetain(&context, 0);
	return status ? status : cuCtxSetCurrent(context);
}

constexpr size_t usual_shared = 48 * 1024, most_shared = 227 * 1024;

/* Dynamic shared memory that kernels were allowed beyond the usual. */
std::mutex allowed_mutex;
std::map<const void *, size_t> allowed;

size_t shared_limit(const void *function)
{
	std::lock_guard<std::mutex> lock(allowed_mutex);
	auto found = allowed.find(function);
	return found == allowed.end() ? usual_shared : found->second;
}

int shape_error(const emulate::Kernel &k, const void *function)
{
	dim3 g = k.grid, b = k.block;
	bool grid = g.x - 1 < 0x7fffffff && g.y - 1 < 65535 && g.z - 1 < 65535;
	bool block = b.x - 1 < 1024 && b.y - 1 < 1024 && b.z - 1 < 64 && b.x * b.y * b.z <= 1024;
	if (!grid || !block)
		return cudaErrorInvalidConfiguration;
	return k.shared > shared_limit(function) ? cudaErrorInvalidValue : cudaSuccess;
}

void run_kernel(void *kernel) { emulate::run(*static_cast<emulate::Kernel *>(kernel)); }
void drop_kernel(void *kernel) { delete static_cast<emulate::Kernel *>(kernel); }

} // namespace

void emulate::enqueue(Kernel *kernel, const void *function, void *stream)
{
	int status = have_context();
	if (status == 0)
		status = shape_error(*kernel, function);
	if (status == 0)
		status = dynmo_emulate_enqueue(static_cast<CUstream>(stream), run_kernel, kernel, drop_kernel);
	else
		delete kernel;
	keep(status);
}

extern "C" {

cudaError_t cudaGetLastError(void)
{
	cudaError_t status = last;
	last = cudaSuccess;
	return status;
}

cudaError_t cudaPeekAtLastError(void) { return last; }

const char *cudaGetErrorString(cudaError_t status)
{
	const char *text = nullptr;
	if (status == cudaErrorInvalidConfiguration)
		return "invalid configuration argument";
	return cuGetErrorString(static_cast<CUresult>(status), &text) ? "unrecognized error code" : text;
}

const char *cudaGetErrorName(cudaError_t status)
{
	const char *text = nullptr;
	if (status == cudaErrorInvalidConfiguration)
		return "cudaErrorInvalidConfiguration";
	return cuGetErrorName(static_cast<CUresult>(status), &text) ? "unrecognized error code" : text;
}

cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute, int value)
{
	if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
		return cudaSuccess;
	if (value < 0 || static_cast<size_t>(value) > most_shared)
		return keep(cudaErrorInvalidValue);
	std::lock_guard<std::mutex> lock(allowed_mutex);
	allowed[function] = static_cast<size_t>(value) > usual_shared ? static_cast<size_t>(value) : usual_shared;
	return cudaSuccess;
}

cudaError_t cudaGetDevice(int *ordinal)
{
	int status = have_context();
	return keep(status ? status : cuCtxGetDevice(ordinal));
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int ordinal)
{
	int status = have_context();
	return keep(status ? status : cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute), ordinal));
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
	*memory = nullptr;
	int status = have_context();
	return keep(status || bytes == 0 ? status : cuMemAlloc(reinterpret_cast<CUdeviceptr *>(memory), bytes));
}

cudaError_t cudaFree(void *memory)
{
	int status = have_context();
	return keep(status ? status : cuMemFree(reinterpret_cast<CUdeviceptr>(memory)));
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
	int status = have_context();
	CUdeviceptr at = reinterpret_cast<CUdeviceptr>(memory);
	return keep(status ? status : cuMemsetD8Async(at, static_cast<unsigned char>(value), bytes, stream));
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes) { return cudaMemsetAsync(memory, value, bytes, nullptr); }

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream)
{
	int status = have_context();
	CUdeviceptr dst = reinterpret_cast<CUdeviceptr>(to), src = reinterpret_cast<CUdeviceptr>(from);
	return keep(status ? status : cuMemcpyAsync(dst, src, bytes, stream));
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind)
{
	int status = have_context();
	CUdeviceptr dst = reinterpret_cast<CUdeviceptr>(to), src = reinterpret_cast<CUdeviceptr>(from);
	return keep(status ? status : cuMemcpy(dst, src, bytes));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	int status = have_context();
	return keep(status ? status : cuStreamSynchronize(stream));
}

cudaError_t cudaDeviceSynchronize(void)
{
	int status = have_context();
	return keep(status ? status : cuCtxSynchronize());
}

} // extern "C"
