/* Tests of the errors that the emulator refuses or finds. The tests of the device and of the
 * kernels, and bench/mutate.sh, do not reach them, because correct kernels make none. */
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "../cuda/device.cuh"

#include "hooks.h"

static int failures;

#define CHECK(x)                                                                                                       \
	do                                                                                                                 \
		if (!(x)) {                                                                                                    \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                                                    \
			failures++;                                                                                                \
		}                                                                                                              \
	while (0)

/* Memory of the device that ends with the test. */
template <typename T> struct Array {
	T *at = nullptr;
	explicit Array(size_t n) { CHECK(cudaMalloc(&at, n * sizeof(T)) == cudaSuccess); }
	~Array() { CHECK(cudaFree(at) == cudaSuccess); }
	std::vector<T> read(size_t n) const
	{
		std::vector<T> host(n);
		CHECK(cudaMemcpy(host.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
		return host;
	}
};

/* Reverses a block through shared memory. */
__global__ void reverse(float *out)
{
	DYNAMIC_SHARED(float, held);
	held[threadIdx.x] = static_cast<float>(threadIdx.x);
	__syncthreads();
	out[threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}

static void test_shape()
{
	auto launched = [](dim3 grid, dim3 block, size_t bytes) {
		float *none = nullptr;
		LAUNCH(reverse, grid, block, bytes, nullptr, none);
		return cudaGetLastError();
	};
	CHECK(launched(0, 32, 0) == cudaErrorInvalidConfiguration);
	CHECK(launched(1, 0, 0) == cudaErrorInvalidConfiguration);
	CHECK(launched(1, 1025, 0) == cudaErrorInvalidConfiguration);
	CHECK(launched(dim3(1, 65536), 32, 0) == cudaErrorInvalidConfiguration);
	CHECK(launched(1, 32, 49 * 1024) == cudaErrorInvalidValue);
	CHECK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 * 1024) != cudaSuccess);
	CHECK(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess);
	CHECK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024) == cudaSuccess);
	Array<float> out(32);
	LAUNCH(reverse, 1, 32, 227 * 1024, nullptr, out.at);
	CHECK(cudaGetLastError() == cudaSuccess && out.read(32)[0] == 31);
}

__global__ static void add(int *at, int by) { *at += by; }

/* A call that is not allowed during a capture fails, and spoils it; the stream works again
 * once the capture has ended. */
static void test_spoiled_captures()
{
	CUstream stream, blocking;
	CUevent event;
	int pageable = 1;
	Array<int> out(1);
	CUdeviceptr at = reinterpret_cast<CUdeviceptr>(out.at), other;
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	CHECK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
	CHECK(cuEventCreate(&event, 0) == CUDA_SUCCESS && cuEventRecord(event, blocking) == CUDA_SUCCESS);
	auto spoils = [](CUstream s, CUresult why, const std::function<CUresult()> &call) {
		CUgraph graph;
		CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
		CHECK(call() == why);
		CHECK(cuStreamEndCapture(s, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED && !graph);
		CHECK(cuStreamSynchronize(s) == CUDA_SUCCESS);
	};
	const CUresult unsupported = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	spoils(stream, unsupported, [&] { return cuMemAlloc(&other, 8); });
	spoils(stream, unsupported, [&] { return cuMemFree(at); });
	spoils(stream, unsupported, [&] { return cuStreamSynchronize(stream); });
	spoils(stream, unsupported, [&] { return cuStreamQuery(stream); });
	spoils(stream, unsupported, [&] { return cuCtxSynchronize(); });
	spoils(stream, unsupported, [&] { return cuEventSynchronize(event); });
	spoils(stream, unsupported, [&] { return cuMemcpyHtoDAsync(at, &pageable, sizeof pageable, stream); });
	spoils(stream, CUDA_ERROR_STREAM_CAPTURE_ISOLATION, [&] { return cuStreamWaitEvent(stream, event, 0); });
	spoils(blocking, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, [&] { return cuMemsetD8(at, 1, 1); });
	spoils(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, [&] {
		void *more;
		CHECK(cudaMalloc(&more, 8) == cudaErrorStreamCaptureUnsupported && cudaGetLastError() != cudaSuccess);
		LAUNCH(add, 1, 1, 0, stream, out.at, 1);
		return static_cast<CUresult>(cudaGetLastError());
	});
	CHECK(cuStreamDestroy(stream) == CUDA_SUCCESS && cuStreamDestroy(blocking) == CUDA_SUCCESS);
	CHECK(cuEventDestroy(event) == CUDA_SUCCESS);
}

static void test_memory()
{
	size_t before, after, all;
	CHECK(cuMemGetInfo(&before, &all) == CUDA_SUCCESS);
	CUdeviceptr at, more;
	CHECK(cuMemAlloc(&at, 1000) == CUDA_SUCCESS && at % 256 == 0);
	CHECK(cuMemAlloc(&more, all) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(cuMemGetInfo(&after, &all) == CUDA_SUCCESS && before - after == 1000);
	unsigned char bytes[1001];
	CHECK(cuMemcpyDtoH(bytes, at, 1000) == CUDA_SUCCESS && bytes[999] == 0xff);
	CHECK(cuMemcpyDtoH(bytes, at, 1001) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemsetD8(at + 1, 7, 1000) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemsetD8(at, 7, 1000) == CUDA_SUCCESS);
	CHECK(cuMemcpyDtoH(bytes, at + 999, 1) == CUDA_SUCCESS && bytes[0] == 7);
	CHECK(cuMemFree(at) == CUDA_SUCCESS && cuMemFree(at) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemcpyDtoH(bytes, at, 1) == CUDA_ERROR_INVALID_VALUE);
}

__global__ void spin(int *at, int from, int to)
{
	for (int i = from; i < to; i++)
		at[i] = i == 0 ? 1 : at[i - 1] + 1;
}

__global__ void early(int *out)
{
	if (threadIdx.x < 3)
		return;
	__syncthreads();
	*out = 1;
}

__global__ void torn(int *out)
{
	if (threadIdx.x < 3)
		out[threadIdx.x] = __shfl_xor_sync(0xffffffff, 1, 1);
}

/* Runs test in a process of its own, which begins the emulator and may end; returns what
 * waitpid gives. */
static int child(const std::function<void()> &test)
{
	pid_t pid = fork();
	if (pid == 0) {
		freopen("/dev/null", "w", stderr);
		failures = 0;
		test();
		_exit(failures);
	}
	int status = -1;
	waitpid(pid, &status, 0);
	return status;
}

static void test_children()
{
	for (auto kernel : {early, torn}) {
		int status = child([kernel] {
			Array<int> out(3);
			LAUNCH(kernel, 1, 32, 0, nullptr, out.at);
			cudaDeviceSynchronize();
		});
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	}
	/* One element past an allocation that fills its pages. */
	int status = child([] {
		int *at = nullptr;
		CHECK(cudaMalloc(&at, 4096) == cudaSuccess);
		LAUNCH(spin, 1, 1, 0, nullptr, at, 0, 1025);
		CHECK(cudaGetLastError() == cudaSuccess);
		CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress && cudaMalloc(&at, 1) == cudaErrorIllegalAddress);
	});
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main()
{
	test_children();
	test_shape();
	test_spoiled_captures();
	test_memory();
	if (failures == 0)
		printf("emulator: selftest passed\n");
	return failures != 0;
}
