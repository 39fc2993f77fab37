/* Counts of all that a process holds, for tests that it is given back. */
#include "stream.h"

using namespace emulate;

static std::atomic<long long> communicators;

extern "C" void dynmo_emulate_communicators(int change) { communicators += change; }

extern "C" void dynmo_emulate_held(struct dynmo_emulate_holding *held)
{
	Driver &d = driver();
	std::lock_guard<std::mutex> lock(d.mutex);
	*held = {};
	for (Device &device : d.devices)
		held->contexts += device.retained;
	held->streams = static_cast<long long>(d.streams.size());
	for (auto &[address, block] : d.blocks)
		(block.device ? held->bytes : held->pinned) += static_cast<long long>(block.bytes);
	held->communicators = communicators;
}
