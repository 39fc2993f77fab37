/* The part of CUDA's driver API that dynmo uses, as libcuda.so.1 on a machine
 * without a GPU. Settings, by environment:
 *
 *   DYNMO_EMULATE_DEVICES=N      devices (1); 0 is a driver that finds none. A list in
 *                                CUDA_VISIBLE_DEVICES limits them to its length
 *   DYNMO_EMULATE_MEMORY=BYTES   of each device (8 GiB)
 *   DYNMO_EMULATE_PROCESSORS=N   multiprocessors of each device (8)
 *   DYNMO_EMULATE_JITTER=SEED    work begins late at random
 *   DYNMO_EMULATE_QUEUES, DYNMO_EMULATE_CTAS, DYNMO_EMULATE_HANG
 *                                see resident.cpp
 *   DYNMO_EMULATE_FAULT=ecc|address|launch, DYNMO_EMULATE_FAULT_AFTER=N
 *                                the first wait after N launches (0) finds this error
 *   DYNMO_EMULATE_ORDER          see block.cpp
 */
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "stream.h"

namespace emulate {

std::atomic<long long> launches;

Driver &driver()
{
	static Driver &d = *new Driver;
	return d;
}

std::shared_ptr<Stream> find_stream(CUstream handle)
{
	Driver &d = driver();
	std::lock_guard<std::mutex> lock(d.mutex);
	if (handle == nullptr || handle == CU_STREAM_LEGACY)
		return current->null;
	auto found = d.streams.find(handle);
	return found == d.streams.end() ? nullptr : found->second;
}

namespace {

std::atomic<bool> initialised;

Device *device_of(CUdevice ordinal)
{
	Driver &d = driver();
	return ordinal >= 0 && ordinal < static_cast<int>(d.devices.size()) ? &d.devices[ordinal] : nullptr;
}
Device *device_of(CUcontext context) { return reinterpret_cast<Device *>(context); }
CUcontext context_of(Device *device) { return reinterpret_cast<CUcontext>(device); }

/* Returns the streams of a device that have none of the flags, without its null stream. */
std::vector<std::shared_ptr<Stream>> streams_without(Device *device, unsigned flags)
{
	Driver &d = driver();
	std::lock_guard<std::mutex> lock(d.mutex);
	std::vector<std::shared_ptr<Stream>> list;
	for (auto &[handle, stream] : d.streams)
		if (stream->device == device && !(stream->flags & flags))
			list.push_back(stream);
	return list;
}

/* Ends the primary context, and with it the streams and memory of the device. */
void destroy(Device *device)
{
	drain(device);
	Driver &d = driver();
	std::lock_guard<std::mutex> lock(d.mutex);
	for (auto i = d.streams.begin(); i != d.streams.end();) {
		auto here = i++;
		if (here->second->device == device) {
			here->second->close();
			d.streams.erase(here);
		}
	}
	device->null->close();
	device->null = nullptr;
	free_blocks(device);
	device->retained = 0;
	device->error = 0;
}

struct Name {
	CUresult status;
	const char *name, *text;
};
const Name names[] = {
	{CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
	{CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{CUDA_ERROR_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
	{CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
	{CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
	{CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	{CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
	{CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
	 "operation not permitted when stream is capturing"},
	{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
	 "operation failed due to a previous error during capture"},
	{CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
	 "dependency created on uncaptured work in another stream"},
	{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
	 "operation would make the legacy stream depend on a capturing blocking stream"},
	{CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
	 "attempt to terminate a thread-local capture sequence from another thread"},
};

CUresult name_of(CUresult status, const char **text, const char *Name::*member)
{
	*text = nullptr;
	for (const Name &n : names)
		if (n.status == status)
			*text = n.*member;
	return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The error that the settings ask for, once it is time. */
int fault()
{
	static const char *const text = getenv("DYNMO_EMULATE_FAULT");
	static const long long after = setting("DYNMO_EMULATE_FAULT_AFTER", 0);
	if (!text || launches < after)
		return 0;
	return !strcmp(text, "ecc")       ? CUDA_ERROR_ECC_UNCORRECTABLE
	       : !strcmp(text, "address") ? CUDA_ERROR_ILLEGAL_ADDRESS
	                                  : CUDA_ERROR_LAUNCH_FAILED;
}

} // namespace

CUresult ready()
{
	if (!initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!current || !current->null)
		return CUDA_ERROR_INVALID_CONTEXT;
	return static_cast<CUresult>(current->error.load());
}

CUresult enqueue(CUstream handle, Work work, PointPtr *end, bool waits)
{
	if (CUresult status = ready())
		return status;
	std::shared_ptr<Stream> stream = find_stream(handle);
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (capturing(handle))
		return end ? spoil(handle, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : capture(handle, std::move(work));
	if (stream == stream->device->null)
		for (auto &other : streams_without(current, CU_STREAM_NON_BLOCKING)) {
			if (CUresult status = spoil(reinterpret_cast<CUstream>(other.get()), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT))
				return status;
			other->mark()->wait();
		}
	else if (!(stream->flags & CU_STREAM_NON_BLOCKING))
		stream->device->null->mark()->wait();
	if (work)
		stream->push(std::move(work), waits);
	if (end)
		*end = stream->mark();
	return CUDA_SUCCESS;
}

void drain(Device *device)
{
	for (auto &stream : streams_without(device, 0))
		stream->mark()->wait();
	device->null->mark()->wait();
}

CUresult waited(Device *device)
{
	if (int status = fault())
		device->error = status;
	return static_cast<CUresult>(device->error.load());
}

} // namespace emulate

using namespace emulate;

extern "C" int dynmo_emulate_enqueue(CUstream stream, void (*run)(void *), void *arg, void (*drop)(void *))
{
	launches++;
	std::shared_ptr<void> held(arg, [=](void *last) {
		if (drop)
			drop(last);
	});
	return enqueue(stream, [=] { run(held.get()); });
}

extern "C" void dynmo_emulate_fail(int status)
{
	if (current)
		current->error = status;
}

/* How many of the devices CUDA_VISIBLE_DEVICES shows; which of them is all one. */
static long long visible(long long devices)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	if (!list) return devices;
	long long shown = *list ? 1 : 0;
	for (; *list; list++)
		shown += *list == ',';
	return std::min(shown, devices);
}

CUresult cuInit(unsigned)
{
	Driver &d = driver();
	std::lock_guard<std::mutex> lock(d.mutex);
	long long count = visible(setting("DYNMO_EMULATE_DEVICES", 1));
	for (int i = static_cast<int>(d.devices.size()); i < count; i++)
		d.devices.emplace_back().ordinal = i;
	initialised = count > 0;
	return count > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version)
{
	*version = 11080;
	return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult status, const char **text) { return name_of(status, text, &Name::name); }
CUresult cuGetErrorString(CUresult status, const char **text) { return name_of(status, text, &Name::text); }

/* Contexts. */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
	Device *device = device_of(ordinal);
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	std::lock_guard<std::mutex> lock(driver().mutex);
	if (device->retained++ == 0)
		device->null = open_stream(device, CU_STREAM_DEFAULT, 0);
	*context = context_of(device);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
	Device *device = device_of(ordinal);
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	int left = --device->retained;
	if (left == 0)
		destroy(device);
	if (left < 0)
		device->retained++;
	return left < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice ordinal)
{
	Device *device = device_of(ordinal);
	if (device && device->retained > 0)
		destroy(device);
	return device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned *flags, int *active)
{
	Device *device = device_of(ordinal);
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = device->flags;
	*active = device->retained > 0;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned flags)
{
	Device *device = device_of(ordinal);
	if (device)
		device->flags = flags;
	return device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
	current = device_of(context);
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
	*context = context_of(current);
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *ordinal)
{
	if (!current)
		return CUDA_ERROR_INVALID_CONTEXT;
	*ordinal = current->ordinal;
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
	if (CUresult status = unbound(current))
		return status;
	drain(current);
	return waited(current);
}

/* Streams. */

CUresult cuStreamCreateWithPriority(CUstream *handle, unsigned flags, int priority)
{
	if (CUresult status = ready())
		return status;
	auto stream = open_stream(current, flags, priority);
	*handle = reinterpret_cast<CUstream>(stream.get());
	std::lock_guard<std::mutex> lock(driver().mutex);
	driver().streams[*handle] = stream;
	return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *handle, unsigned flags) { return cuStreamCreateWithPriority(handle, flags, 0); }

CUresult cuStreamDestroy(CUstream handle)
{
	std::lock_guard<std::mutex> lock(driver().mutex);
	auto found = driver().streams.find(handle);
	if (found == driver().streams.end())
		return CUDA_ERROR_INVALID_HANDLE;
	found->second->close();
	driver().streams.erase(found);
	return CUDA_SUCCESS;
}

/* Finds the stream whose progress is asked for, which a capture forbids. */
static CUresult asked(CUstream handle, std::shared_ptr<Stream> &stream)
{
	if (CUresult status = unbound())
		return status;
	stream = find_stream(handle);
	return stream ? spoil(handle, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamSynchronize(CUstream handle)
{
	std::shared_ptr<Stream> stream;
	if (CUresult status = asked(handle, stream))
		return status;
	stream->mark()->wait();
	return waited(stream->device);
}

CUresult cuStreamQuery(CUstream handle)
{
	std::shared_ptr<Stream> stream;
	if (CUresult status = asked(handle, stream))
		return status;
	return stream->idle() ? waited(stream->device) : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned *flags)
{
	if (CUresult status = ready())
		return status;
	auto stream = find_stream(handle);
	if (stream)
		*flags = stream->flags;
	return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
	if (CUresult status = ready())
		return status;
	auto stream = find_stream(handle);
	if (stream)
		*priority = stream->priority;
	return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return ready();
}
