/* Tests of the emulator itself: what kernels can rely on, and that it finds what
 * it says it finds. Tests that end the process or read the environment run in a
 * child. */
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>

#include <sys/wait.h>
#include <unistd.h>

#include "selftest.h"

constexpr unsigned all_lanes = 0xffffffff;

/* out[block] = Σ of the threads' global indices, by warps and then over warps. */
__global__ void sum(int *out)
{
	SHARED(int, partial, [32]);
	unsigned thread = threadIdx.x + blockDim.x * threadIdx.y, lane = thread % 32, warp = thread / 32;
	unsigned threads = blockDim.x * blockDim.y;
	int value = static_cast<int>(blockIdx.x * threads + thread);
	for (int by = 16; by > 0; by /= 2) {
		int other = __shfl_down_sync(all_lanes, value, by);
		value += lane + by < 32 && thread + by < threads ? other : 0;
	}
	if (lane == 0)
		partial[warp] = value;
	__syncthreads();
	if (thread == 0) {
		int total = 0;
		for (unsigned i = 0; i < (threads + 31) / 32; i++)
			total += partial[i];
		out[blockIdx.x] = total;
	}
}

static void test_sum()
{
	Array<int> out(3);
	for (dim3 block : {dim3(1), dim3(17), dim3(32), dim3(33), dim3(64, 3), dim3(1024)}) {
		LAUNCH(sum, 3, block, 0, nullptr, out.at);
		CHECK(cudaGetLastError() == cudaSuccess);
		int n = static_cast<int>(block.x * block.y);
		for (int b = 0; b < 3; b++)
			CHECK(out.read(3)[b] == n * (n - 1) / 2 + b * n * n);
	}
}

/* One word for each kind of exchange. */
__global__ void exchange(int *out)
{
	int lane = static_cast<int>(threadIdx.x);
	out[lane] = __shfl_sync(all_lanes, lane, 5);
	out[32 + lane] = __shfl_sync(all_lanes, lane, 1, 8);
	out[64 + lane] = __shfl_xor_sync(all_lanes, lane, 3);
	out[96 + lane] = __shfl_up_sync(all_lanes, lane, 2, 16);
	out[128 + lane] = __shfl_down_sync(all_lanes, lane, 2, 16);
	out[160 + lane] = static_cast<int>(__ballot_sync(all_lanes, lane % 3 == 0));
	out[192 + lane] = __any_sync(all_lanes, lane == 7) + 2 * __all_sync(all_lanes, lane < 32);
	out[192 + lane] += 4 * __all_sync(all_lanes, lane);
	out[224 + lane] = lane < 8 ? __shfl_xor_sync(0xffu, lane, 1) : 0;
}

static void test_exchange()
{
	Array<int> out(256);
	LAUNCH(exchange, 1, 32, 0, nullptr, out.at);
	std::vector<int> got = out.read(256);
	int threes = 0;
	for (int i = 0; i < 32; i += 3)
		threes |= 1 << i;
	for (int i = 0; i < 32; i++) {
		CHECK(got[i] == 5);
		CHECK(got[32 + i] == i / 8 * 8 + 1);
		CHECK(got[64 + i] == (i ^ 3));
		CHECK(got[96 + i] == (i % 16 >= 2 ? i - 2 : i));
		CHECK(got[128 + i] == (i % 16 < 14 ? i + 2 : i));
		CHECK(got[160 + i] == threes);
		CHECK(got[192 + i] == 3);
		CHECK(got[224 + i] == (i < 8 ? i ^ 1 : 0));
	}
}

/* Reverses a block through shared memory, with or without the barrier it needs. */
template <bool barrier> __global__ void reverse(float *out)
{
	DYNAMIC_SHARED(float, held);
	held[threadIdx.x] = static_cast<float>(threadIdx.x);
	if (barrier)
		__syncthreads();
	out[threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}

static bool reverses(bool barrier)
{
	Array<float> out(64);
	if (barrier)
		LAUNCH((reverse<true>), 1, 64, 256, nullptr, out.at);
	else
		LAUNCH((reverse<false>), 1, 64, 256, nullptr, out.at);
	std::vector<float> got = out.read(64);
	bool right = true;
	for (int i = 0; i < 64; i++)
		right = right && got[i] == static_cast<float>(63 - i);
	return right;
}

/* The last thread in order sees what all wrote: only another order tells. */
template <bool barrier> __global__ void collect(int *out)
{
	SHARED(int, held, [64]);
	held[threadIdx.x] = 1;
	if (barrier)
		__syncthreads();
	if (threadIdx.x == 63) {
		int count = 0;
		for (int x : held)
			count += x;
		*out = count;
	}
}

template <bool barrier> static bool collects()
{
	Array<int> out(1);
	LAUNCH((collect<barrier>), 1, 64, 0, nullptr, out.at);
	return out.read(1)[0] == 64;
}

static void test_shape()
{
	auto launched = [](dim3 grid, dim3 block, size_t bytes) {
		float *none = nullptr;
		LAUNCH((reverse<true>), grid, block, bytes, nullptr, none);
		return cudaGetLastError();
	};
	CHECK(launched(0, 32, 0) == cudaErrorInvalidConfiguration);
	CHECK(launched(1, 0, 0) == cudaErrorInvalidConfiguration);
	CHECK(launched(1, 1025, 0) == cudaErrorInvalidConfiguration);
	CHECK(launched(dim3(1, 65536), 32, 0) == cudaErrorInvalidConfiguration);
	CHECK(launched(1, 32, 49 * 1024) == cudaErrorInvalidValue);
	CHECK(cudaFuncSetAttribute(reverse<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 * 1024) != cudaSuccess);
	CHECK(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess);
	CHECK(cudaFuncSetAttribute(reverse<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024) == cudaSuccess);
	Array<float> out(32);
	LAUNCH((reverse<true>), 1, 32, 227 * 1024, nullptr, out.at);
	CHECK(cudaGetLastError() == cudaSuccess && out.read(32)[0] == 31);
}

__global__ void spin(int *at, int from, int to)
{
	for (int i = from; i < to; i++)
		at[i] = i == 0 ? 1 : at[i - 1] + 1;
}

/* Two streams hand a chain of additions to and fro; only events keep the order. */
static void test_streams()
{
	constexpr int n = 200;
	Array<int> chain(n);
	CUstream streams[2];
	CUevent events[2];
	for (int i = 0; i < 2; i++) {
		CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
		CHECK(cuEventCreate(&events[i], 0) == CUDA_SUCCESS);
	}
	for (int i = 0; i < n; i++) {
		if (i > 0)
			CHECK(cuStreamWaitEvent(streams[i % 2], events[(i - 1) % 2], 0) == CUDA_SUCCESS);
		LAUNCH(spin, 1, 1, 0, streams[i % 2], chain.at, i, i + 1);
		CHECK(cuEventRecord(events[i % 2], streams[i % 2]) == CUDA_SUCCESS);
	}
	CHECK(cuEventSynchronize(events[(n - 1) % 2]) == CUDA_SUCCESS);
	CHECK(cuEventQuery(events[(n - 1) % 2]) == CUDA_SUCCESS && cuStreamQuery(streams[(n - 1) % 2]) == CUDA_SUCCESS);
	CHECK(chain.read(n)[n - 1] == n);
	float milliseconds = -1;
	CHECK(cuEventElapsedTime(&milliseconds, events[n % 2], events[(n - 1) % 2]) == CUDA_SUCCESS && milliseconds >= 0);
	for (int i = 0; i < 2; i++)
		CHECK(cuStreamDestroy(streams[i]) == CUDA_SUCCESS && cuEventDestroy(events[i]) == CUDA_SUCCESS);
	CHECK(cuStreamSynchronize(streams[0]) == CUDA_ERROR_INVALID_HANDLE);
}

/* A worker that waits until the host says so shows that nothing before blocks. */
static void test_asynchronous()
{
	static std::atomic<bool> go;
	CUstream stream;
	CUevent event;
	int host[4] = {1, 2, 3, 4}, *pinned = nullptr;
	Array<int> device(4);
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS && cuEventCreate(&event, 0) == CUDA_SUCCESS);
	CHECK(cuMemHostAlloc(reinterpret_cast<void **>(&pinned), sizeof host, 0) == CUDA_SUCCESS);
	dynmo_emulate_enqueue(
	    stream,
	    [](void *) {
		    while (!go)
			    usleep(100);
	    },
	    nullptr, nullptr);
	CUdeviceptr at = reinterpret_cast<CUdeviceptr>(device.at);
	CHECK(cuMemcpyHtoDAsync(at, host, sizeof host, stream) == CUDA_SUCCESS);
	host[0] = 9; /* it was read already */
	CHECK(cuMemcpyDtoHAsync(pinned, at, sizeof host, stream) == CUDA_SUCCESS);
	CHECK(cuEventRecord(event, stream) == CUDA_SUCCESS);
	CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY && cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
	go = true;
	CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS && cuEventQuery(event) == CUDA_SUCCESS);
	CHECK(pinned[0] == 1 && pinned[3] == 4);
	CHECK(cuMemFreeHost(pinned) == CUDA_SUCCESS && cuStreamDestroy(stream) == CUDA_SUCCESS);
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
		out[threadIdx.x] = __shfl_xor_sync(all_lanes, 1, 1);
}

/* Runs test in a child in which name is set to value; returns what waitpid gives. */
static int child(const char *name, const char *value, const std::function<void()> &test)
{
	pid_t pid = fork();
	if (pid == 0) {
		setenv(name, value, 1);
		freopen("/dev/null", "w", stderr);
		failures = 0;
		test();
		_exit(failures);
	}
	int status = -1;
	waitpid(pid, &status, 0);
	return status;
}
static bool passes(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
static bool aborts(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT; }

/* Checks that a process can make once only, since it begins the emulator, run in
 * processes of their own. */
static void test_children()
{
	for (const char *order : {"forward", "reverse", "random:1", "random:2"}) {
		CHECK(passes(child("DYNMO_EMULATE_ORDER", order, [] { CHECK(reverses(true) && collects<true>()); })));
		CHECK(passes(child("DYNMO_EMULATE_ORDER", order, [] { CHECK(!reverses(false)); })));
		CHECK(passes(child("DYNMO_EMULATE_ORDER", order, test_sum)));
		CHECK(passes(child("DYNMO_EMULATE_ORDER", order, test_exchange)));
	}
	CHECK(passes(child("DYNMO_EMULATE_ORDER", "forward", [] { CHECK(collects<false>()); })));
	CHECK(passes(child("DYNMO_EMULATE_ORDER", "reverse", [] { CHECK(!collects<false>()); })));
	CHECK(passes(child("DYNMO_EMULATE_JITTER", "3", test_streams)));
	for (auto kernel : {early, torn})
		CHECK(aborts(child("DYNMO_EMULATE_ORDER", "forward", [kernel] {
			Array<int> out(3);
			LAUNCH(kernel, 1, 32, 0, nullptr, out.at);
			cudaDeviceSynchronize();
		})));
	CHECK(passes(child("DYNMO_EMULATE_DEVICES", "0", [] { CHECK(cuInit(0) == CUDA_ERROR_NO_DEVICE); })));
	CHECK(passes(child("DYNMO_EMULATE_FAULT", "ecc", [] {
		LAUNCH(spin, 1, 1, 0, nullptr, nullptr, 0, 0);
		CHECK(cudaGetLastError() == cudaSuccess);
		CHECK(cudaDeviceSynchronize() == cudaErrorECCUncorrectable);
		LAUNCH(spin, 1, 1, 0, nullptr, nullptr, 0, 0);
		CHECK(cudaGetLastError() == cudaErrorECCUncorrectable);
	})));
	CHECK(passes(child("DYNMO_EMULATE_MEMORY", "4096", [] {
		void *at;
		CHECK(cudaMalloc(&at, 4097) == cudaErrorMemoryAllocation && cudaMalloc(&at, 4096) == cudaSuccess);
	})));
	/* One element past an allocation that fills its pages. */
	CHECK(passes(child("DYNMO_EMULATE_ORDER", "forward", [] {
		int *at = nullptr;
		CHECK(cudaMalloc(&at, 4096) == cudaSuccess);
		LAUNCH(spin, 1, 1, 0, nullptr, at, 0, 1025);
		CHECK(cudaGetLastError() == cudaSuccess);
		CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress && cudaMalloc(&at, 1) == cudaErrorIllegalAddress);
	})));
}

int main()
{
	test_children();
	test_sum();
	test_exchange();
	test_shape();
	test_streams();
	test_asynchronous();
	test_graph();
	test_spoiled_captures();
	test_memory();
	if (failures == 0)
		printf("emulator: selftest passed\n");
	return failures != 0;
}
