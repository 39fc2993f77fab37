/* Stream capture and graphs of the emulated driver. What one stream captures is a
 * chain: no other stream can join in, so that an event that is recorded or waited
 * for spoils the capture. Only captures that bind their own thread are known. */
#include <thread>

#include "stream.h"

namespace emulate {

/* Work that a stream was given while it captured. */
class Capture {
	std::mutex mutex;
	bool spoiled = false;
	Chain chain;

public:
	const std::thread::id thread = std::this_thread::get_id();
	Device *const device = current;

	CUresult take(Work work);
	CUresult spoil(CUresult why);
	CUresult end(Chain *all);
};

CUresult Capture::take(Work work)
{
	std::lock_guard<std::mutex> lock(mutex);
	if (spoiled)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (work)
		chain.push_back(std::move(work));
	return CUDA_SUCCESS;
}

CUresult Capture::spoil(CUresult why)
{
	std::lock_guard<std::mutex> lock(mutex);
	spoiled = true;
	return why;
}

CUresult Capture::end(Chain *all)
{
	std::lock_guard<std::mutex> lock(mutex);
	*all = std::move(chain);
	return spoiled ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

namespace {

std::mutex graphs_mutex;
std::map<CUstream, std::shared_ptr<Capture>> captures; /* that are under way */
std::map<CUgraph, std::shared_ptr<Chain>> graphs;
std::map<CUgraphExec, std::shared_ptr<Chain>> executables;

std::shared_ptr<Capture> capture_of(CUstream stream)
{
	std::lock_guard<std::mutex> lock(graphs_mutex);
	auto found = captures.find(stream);
	return found == captures.end() ? nullptr : found->second;
}

/* Keeps a chain under a new handle: the address of the chain. */
template <typename Handle>
Handle keep(std::map<Handle, std::shared_ptr<Chain>> &kept, std::shared_ptr<Chain> chain)
{
	Handle handle = reinterpret_cast<Handle>(chain.get());
	std::lock_guard<std::mutex> lock(graphs_mutex);
	kept[handle] = std::move(chain);
	return handle;
}

template <typename Handle>
std::shared_ptr<Chain> find(std::map<Handle, std::shared_ptr<Chain>> &kept, Handle handle)
{
	std::lock_guard<std::mutex> lock(graphs_mutex);
	auto found = kept.find(handle);
	return found == kept.end() ? nullptr : found->second;
}

template <typename Handle> CUresult forget(std::map<Handle, std::shared_ptr<Chain>> &kept, Handle handle)
{
	std::lock_guard<std::mutex> lock(graphs_mutex);
	return kept.erase(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

} // namespace

bool capturing(CUstream stream) { return capture_of(stream) != nullptr; }

CUresult capture(CUstream stream, Work work) { return capture_of(stream)->take(std::move(work)); }

CUresult spoil(CUstream stream, CUresult why)
{
	auto capture = capture_of(stream);
	return capture ? capture->spoil(why) : CUDA_SUCCESS;
}

CUresult unbound(Device *device)
{
	if (CUresult status = ready())
		return status;
	std::lock_guard<std::mutex> lock(graphs_mutex);
	CUresult status = CUDA_SUCCESS;
	for (auto &[stream, capture] : captures)
		if (capture->thread == std::this_thread::get_id() || capture->device == device)
			status = capture->spoil(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	return status;
}

} // namespace emulate

using namespace emulate;

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
	if (CUresult status = ready())
		return status;
	if (mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!stream || stream == CU_STREAM_LEGACY)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (!find_stream(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	std::lock_guard<std::mutex> lock(graphs_mutex);
	bool first = captures.emplace(stream, std::make_shared<Capture>()).second;
	return first ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	*graph = nullptr;
	auto capture = capture_of(stream);
	if (!capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (capture->thread != std::this_thread::get_id())
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	{
		std::lock_guard<std::mutex> lock(graphs_mutex);
		captures.erase(stream);
	}
	auto chain = std::make_shared<Chain>();
	CUresult status = capture->end(chain.get());
	if (status == CUDA_SUCCESS)
		*graph = keep(graphs, chain);
	return status;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long)
{
	*executable = nullptr;
	if (CUresult status = ready())
		return status;
	auto chain = find(graphs, graph);
	if (!chain)
		return CUDA_ERROR_INVALID_VALUE;
	*executable = keep(executables, std::make_shared<Chain>(*chain));
	return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream)
{
	auto chain = find(executables, executable);
	if (!chain)
		return CUDA_ERROR_INVALID_VALUE;
	launches += static_cast<long long>(chain->size());
	return enqueue(stream, [chain] {
		for (const Work &work : *chain)
			work();
	});
}

CUresult cuGraphExecDestroy(CUgraphExec executable) { return forget(executables, executable); }
CUresult cuGraphDestroy(CUgraph graph) { return forget(graphs, graph); }
