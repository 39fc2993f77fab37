/* Tests of stream capture and graphs. */
#include <functional>

#include "selftest.h"

__global__ static void add(int *at, int by) { *at += by; }

/* The work of a graph is done when it is launched, as often as it is, on the memory
 * as it is then. */
void test_graph()
{
	CUstream stream;
	CUgraph graph;
	CUgraphExec executable;
	Array<int> sum(1), copy(1);
	CUdeviceptr from = reinterpret_cast<CUdeviceptr>(sum.at), to = reinterpret_cast<CUdeviceptr>(copy.at);
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	CHECK(cuMemsetD32(from, 5, 1) == CUDA_SUCCESS && cuMemsetD32(to, 9, 1) == CUDA_SUCCESS);
	CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
	LAUNCH(add, 1, 1, 0, stream, sum.at, 1);
	CHECK(cudaGetLastError() == cudaSuccess);
	CHECK(cuMemcpyDtoDAsync(to, from, sizeof(int), stream) == CUDA_SUCCESS);
	LAUNCH(add, 1, 1, 0, stream, copy.at, 100);
	CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
	CHECK(cuGraphInstantiateWithFlags(&executable, graph, 0) == CUDA_SUCCESS && cuGraphDestroy(graph) == CUDA_SUCCESS);
	CHECK(sum.read(1)[0] == 5 && copy.read(1)[0] == 9);
	for (int launch = 1; launch <= 3; launch++) {
		CHECK(cuGraphLaunch(executable, stream) == CUDA_SUCCESS && cuStreamSynchronize(stream) == CUDA_SUCCESS);
		CHECK(sum.read(1)[0] == 5 + launch && copy.read(1)[0] == 105 + launch);
	}
	CHECK(cuGraphExecDestroy(executable) == CUDA_SUCCESS);
	CHECK(cuGraphLaunch(executable, stream) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_ILLEGAL_STATE && cuStreamDestroy(stream) == CUDA_SUCCESS);
}

/* A call that is not allowed during a capture fails, and spoils it; the stream works again
 * once the capture has ended. */
void test_spoiled_captures()
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
