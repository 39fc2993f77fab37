/* Memory of the emulated driver. Device memory is host memory, known by address.
 * Copies check that device pointers lie in it. Every allocation has a page on
 * either side that cannot be touched. New memory is NaN. */
#include <algorithm>
#include <cstring>
#include <vector>

#include <sys/mman.h>

#include "stream.h"

namespace emulate {

namespace {

constexpr size_t page = 4096, alignment = 256;

size_t total() { return static_cast<size_t>(setting("DYNMO_EMULATE_MEMORY", 8LL << 30)); }

/* The end of a block, rounded up to alignment, is the end of its pages. */
CUresult allocate(uintptr_t *at, size_t bytes, Device *device)
{
	if (bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	Driver &d = driver();
	std::lock_guard<std::mutex> lock(d.mutex);
	if (device && bytes > total() - device->used)
		return CUDA_ERROR_OUT_OF_MEMORY;
	size_t room = (bytes + alignment - 1) / alignment * alignment, pages = (room + page - 1) / page * page;
	void *p = mmap(nullptr, pages + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	unsigned char *mapping = static_cast<unsigned char *>(p), *end = mapping + page + pages;
	if (mprotect(mapping + page, pages, PROT_READ | PROT_WRITE)) {
		munmap(p, pages + 2 * page);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	std::memset(end - room, 0xff, room);
	*at = reinterpret_cast<uintptr_t>(end - room);
	d.blocks[*at] = Block{bytes, mapping, pages + 2 * page, device};
	if (device)
		device->used += bytes;
	return CUDA_SUCCESS;
}

/* Device memory is freed when the device is done, as CUDA does. */
CUresult release(uintptr_t at, bool on_device)
{
	if (on_device && current)
		drain(current);
	Driver &d = driver();
	std::lock_guard<std::mutex> lock(d.mutex);
	auto found = d.blocks.find(at);
	if (found == d.blocks.end() || (found->second.device != nullptr) != on_device)
		return CUDA_ERROR_INVALID_VALUE;
	if (on_device)
		found->second.device->used -= found->second.bytes;
	munmap(found->second.mapping, found->second.mapped);
	d.blocks.erase(found);
	return CUDA_SUCCESS;
}

enum Place { DEVICE, PINNED, PAGEABLE };

Place place(uintptr_t at, size_t bytes)
{
	std::lock_guard<std::mutex> lock(driver().mutex);
	const Block *block = find_block(at, bytes);
	return !block ? PAGEABLE : block->device ? DEVICE : PINNED;
}

/* A copy. Pageable memory is read before the call returns, and written too; no graph
 * can hold such a copy. */
CUresult copy(uintptr_t to, uintptr_t from, size_t bytes, CUstream stream, bool wait)
{
	if (CUresult status = ready())
		return status;
	if (bytes == 0)
		return CUDA_SUCCESS;
	void *dst = reinterpret_cast<void *>(to);
	const void *src = reinterpret_cast<const void *>(from);
	Work work = [=] { std::memmove(dst, src, bytes); };
	bool read = place(from, bytes) == PAGEABLE, written = place(to, bytes) == PAGEABLE;
	if (read && !written) {
		const unsigned char *first = static_cast<const unsigned char *>(src);
		auto staged = std::make_shared<std::vector<unsigned char>>(first, first + bytes);
		work = [=] { std::memcpy(dst, staged->data(), bytes); };
	}
	PointPtr end;
	CUresult status = enqueue(stream, work, wait || read || written ? &end : nullptr);
	if (status == CUDA_SUCCESS && (wait || written))
		end->wait();
	return status;
}

bool on_device(CUdeviceptr at, size_t bytes) { return bytes == 0 || place(at, bytes) == DEVICE; }

/* A copy that names the sides that must be device memory. */
CUresult copy_to(CUdeviceptr to, const void *from, size_t bytes, CUstream stream, bool wait)
{
	bool valid = on_device(to, bytes);
	return valid ? copy(to, reinterpret_cast<uintptr_t>(from), bytes, stream, wait) : CUDA_ERROR_INVALID_VALUE;
}
CUresult copy_from(void *to, CUdeviceptr from, size_t bytes, CUstream stream, bool wait)
{
	bool valid = on_device(from, bytes);
	return valid ? copy(reinterpret_cast<uintptr_t>(to), from, bytes, stream, wait) : CUDA_ERROR_INVALID_VALUE;
}
CUresult copy_within(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	bool valid = on_device(to, bytes) && on_device(from, bytes);
	return valid ? copy(to, from, bytes, stream, false) : CUDA_ERROR_INVALID_VALUE;
}

template <typename T> CUresult set(CUdeviceptr at, T value, size_t n, CUstream stream)
{
	if (CUresult status = ready())
		return status;
	if (n == 0)
		return CUDA_SUCCESS;
	if (!on_device(at, n * sizeof(T)) || at % sizeof(T))
		return CUDA_ERROR_INVALID_VALUE;
	T *first = reinterpret_cast<T *>(at);
	return enqueue(stream, [=] { std::fill(first, first + n, value); });
}

} // namespace

const Block *find_block(uintptr_t at, size_t bytes)
{
	auto &blocks = driver().blocks;
	auto after = blocks.upper_bound(at);
	if (after == blocks.begin())
		return nullptr;
	auto &[first, block] = *--after;
	return at - first <= block.bytes && bytes <= block.bytes - (at - first) ? &block : nullptr;
}

void free_blocks(Device *device)
{
	auto &blocks = driver().blocks;
	for (auto i = blocks.begin(); i != blocks.end();) {
		if (i->second.device == device) {
			munmap(i->second.mapping, i->second.mapped);
			i = blocks.erase(i);
		} else {
			++i;
		}
	}
	device->used = 0;
}

} // namespace emulate

using namespace emulate;

CUresult cuMemGetInfo(size_t *free, size_t *all)
{
	if (CUresult status = ready())
		return status;
	std::lock_guard<std::mutex> lock(driver().mutex);
	*all = total();
	*free = *all - current->used;
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice)
{
	*bytes = total();
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *at, size_t bytes)
{
	CUresult status = unbound();
	uintptr_t address = 0;
	if (status == CUDA_SUCCESS)
		status = allocate(&address, bytes, current);
	*at = address;
	return status;
}

CUresult cuMemFree(CUdeviceptr at)
{
	if (CUresult status = unbound())
		return status;
	return at == 0 ? CUDA_SUCCESS : release(at, true);
}

CUresult cuMemHostAlloc(void **at, size_t bytes, unsigned)
{
	CUresult status = unbound();
	uintptr_t address = 0;
	if (status == CUDA_SUCCESS)
		status = allocate(&address, bytes, nullptr);
	*at = reinterpret_cast<void *>(address);
	return status;
}

CUresult cuMemAllocHost(void **at, size_t bytes) { return cuMemHostAlloc(at, bytes, 0); }

CUresult cuMemFreeHost(void *at)
{
	if (CUresult status = unbound())
		return status;
	drain(current);
	return release(reinterpret_cast<uintptr_t>(at), false);
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
	return copy_to(to, from, bytes, nullptr, true);
}
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) { return copy_from(to, from, bytes, nullptr, true); }
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) { return copy_within(to, from, bytes, nullptr); }
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	return copy_to(to, from, bytes, stream, false);
}
CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return copy_from(to, from, bytes, stream, false);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return copy_within(to, from, bytes, stream);
}
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) { return copy(to, from, bytes, nullptr, true); }
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return copy(to, from, bytes, stream, false);
}

CUresult cuMemsetD8(CUdeviceptr at, unsigned char value, size_t n) { return set(at, value, n, nullptr); }
CUresult cuMemsetD32(CUdeviceptr at, unsigned value, size_t n) { return set(at, value, n, nullptr); }
CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t n, CUstream stream)
{
	return set(at, value, n, stream);
}
CUresult cuMemsetD32Async(CUdeviceptr at, unsigned value, size_t n, CUstream stream)
{
	return set(at, value, n, stream);
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr at)
{
	std::lock_guard<std::mutex> lock(driver().mutex);
	const Block *block = find_block(at, 1);
	if (!block)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
		*static_cast<unsigned *>(data) = block->device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
		*static_cast<int *>(data) = block->device ? block->device->ordinal : 0;
	else
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}
