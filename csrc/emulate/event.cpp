/* Events of the emulated driver. */
#include "stream.h"

namespace emulate {
namespace {

std::shared_ptr<Event> find(CUevent handle)
{
	std::lock_guard<std::mutex> lock(driver().mutex);
	auto found = driver().events.find(handle);
	return found == driver().events.end() ? nullptr : found->second;
}

/* Where an event was last recorded; null, if never. */
CUresult point_of(CUevent handle, PointPtr *point)
{
	auto event = find(handle);
	if (event)
		*point = event->point;
	return event ? ready() : CUDA_ERROR_INVALID_HANDLE;
}

} // namespace
} // namespace emulate

using namespace emulate;

CUresult cuEventCreate(CUevent *handle, unsigned flags)
{
	if (CUresult status = ready())
		return status;
	auto event = std::make_shared<Event>(Event{flags, nullptr});
	*handle = reinterpret_cast<CUevent>(event.get());
	std::lock_guard<std::mutex> lock(driver().mutex);
	driver().events[*handle] = event;
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent handle)
{
	std::lock_guard<std::mutex> lock(driver().mutex);
	return driver().events.erase(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventRecord(CUevent handle, CUstream stream)
{
	auto event = find(handle);
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	return enqueue(stream, nullptr, &event->point);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned)
{
	PointPtr point;
	CUresult status = point_of(handle, &point);
	if (status != CUDA_SUCCESS || !point)
		return status;
	if (CUresult refused = spoil(stream, CUDA_ERROR_STREAM_CAPTURE_ISOLATION))
		return refused;
	return enqueue(stream, [point] { point->wait(); }, nullptr, true);
}

CUresult cuEventQuery(CUevent handle)
{
	PointPtr point;
	if (CUresult status = unbound())
		return status;
	if (CUresult status = point_of(handle, &point))
		return status;
	return !point || point->reached() ? waited(current) : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle)
{
	PointPtr point;
	if (CUresult status = unbound())
		return status;
	if (CUresult status = point_of(handle, &point))
		return status;
	if (point)
		point->wait();
	return waited(current);
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to)
{
	auto first = find(from), last = find(to);
	if (!first || !last || ((first->flags | last->flags) & CU_EVENT_DISABLE_TIMING) || !first->point || !last->point)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!first->point->reached() || !last->point->reached())
		return CUDA_ERROR_NOT_READY;
	*milliseconds = static_cast<float>((last->point->seconds() - first->point->seconds()) * 1000);
	return ready();
}
