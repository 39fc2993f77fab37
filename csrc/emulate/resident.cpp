/* The room of a device: its hardware queues, and the CTAs of kernels that wait for
 * other GPUs while they run. Such a kernel keeps its CTAs until it ends. A deadlock
 * is reported and given up.
 *
 *   DYNMO_EMULATE_QUEUES=N      hardware queues of a device (32), shared by its streams
 *   DYNMO_EMULATE_CTAS=N        CTAs of a device that such kernels may have (132)
 *   DYNMO_EMULATE_HANG=SECONDS  standstill, with something waiting, that is a deadlock (30)
 */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <list>
#include <string>

#include "stream.h"

namespace emulate {

std::atomic<long long> progress;

namespace {

enum State { BEHIND, OUTSIDE, INSIDE, GONE }; /* an earlier kernel; all CTAs; resident; done */

struct Resident {
	dynmo_emulate_kernel kernel;
	std::string name;
	std::shared_ptr<void> arg;
	Device *device;
	std::shared_ptr<Resident> before; /* of its domain */
	State state = BEHIND;
};
using ResidentPtr = std::shared_ptr<Resident>;

struct Room {
	std::mutex mutex;
	std::condition_variable changed;
	std::list<ResidentPtr> kernels; /* that are not done, in the order of issue */
	std::list<Device *> blocked;    /* devices by queue that holds a stream up */
	dynmo_emulate_counts counts = {};
	long long reported = -1;        /* the progress at which a hang was */
};
Room &room()
{
	static Room &r = *new Room;
	return r;
}

long long most_ctas(Device *device) { return setting("DYNMO_EMULATE_CTAS", 132) * owners(device); }

/* Kernels of a device in a state, and the CTAs that they hold or want. */
struct Tally {
	long long kernels = 0, ctas = 0;
	const char *first = "";
};
Tally tally(Device *device, State state)
{
	Tally t;
	for (const ResidentPtr &k : room().kernels)
		if (k->device == device && k->state == state) {
			t.first = t.kernels == 0 ? k->name.c_str() : t.first;
			t.kernels++;
			t.ctas += k->kernel.ctas;
		}
	return t;
}

/* Says what a device waits for. The lock is held. */
void report(Device *device)
{
	Tally inside = tally(device, INSIDE), outside = tally(device, OUTSIDE), behind = tally(device, BEHIND);
	long long blocked = std::count(room().blocked.begin(), room().blocked.end(), device);
	if (inside.kernels + outside.kernels + behind.kernels + blocked == 0)
		return;
	fprintf(stderr, "  GPU %d: %lld kernels are resident, with %lld of %lld CTAs; the first: %s\n", device->ordinal,
	        inside.kernels, inside.ctas, most_ctas(device), inside.first);
	if (outside.kernels)
		fprintf(stderr, "    %lld kernels wait for CTAs, the first, of %lld in all: %s\n", outside.kernels, outside.ctas,
		        outside.first);
	if (behind.kernels)
		fprintf(stderr, "    %lld kernels are behind others of their communicators or streams: %s\n", behind.kernels,
		        behind.first);
	if (blocked)
		fprintf(stderr, "    %lld streams are blocked in hardware queues by work of other streams\n", blocked);
}

/* Reports that nothing happens any more, and gives up all kernels. */
void hang()
{
	std::list<ResidentPtr> stuck;
	{
		std::lock_guard<std::mutex> lock(room().mutex);
		if (room().kernels.empty() || room().reported == progress)
			return;
		room().reported = progress;
		stuck = room().kernels;
		fprintf(stderr, "dynmo emulator: nothing has happened for %lld s: these GPUs hang\n",
		        setting("DYNMO_EMULATE_HANG", 30));
		for (Device &device : driver().devices)
			report(&device);
	}
	for (const ResidentPtr &k : stuck)
		k->kernel.fail(k->kernel.arg);
}

/* Waits until ready; lock is that of changed and of what ready asks for. */
template <typename Ready> void watch(std::unique_lock<std::mutex> &lock, std::condition_variable &changed, Ready ready)
{
	using clock = std::chrono::steady_clock;
	long long seen = progress;
	auto since = clock::now();
	while (!changed.wait_for(lock, std::chrono::milliseconds(100), ready)) {
		if (long long done = progress; done != seen) {
			seen = done;
			since = clock::now();
		} else if (clock::now() - since >= std::chrono::seconds(setting("DYNMO_EMULATE_HANG", 30))) {
			lock.unlock();
			hang();
			lock.lock();
		}
	}
}

/* Waits for its turn and for CTAs. */
void enter(const ResidentPtr &k)
{
	Room &r = room();
	auto gone = [&] { return k->kernel.gone(k->kernel.arg) != 0; };
	std::unique_lock<std::mutex> lock(r.mutex);
	watch(lock, r.changed, [&] { return !k->before || k->before->state == GONE || gone(); });
	k->before = nullptr;
	k->state = OUTSIDE;
	watch(lock, r.changed, [&] { return tally(k->device, INSIDE).ctas + k->kernel.ctas <= most_ctas(k->device) || gone(); });
	k->state = INSIDE;
	Tally now = tally(k->device, INSIDE);
	r.counts.kernels = std::max(r.counts.kernels, now.kernels);
	r.counts.ctas = std::max(r.counts.ctas, now.ctas);
}

void leave(const ResidentPtr &k)
{
	std::lock_guard<std::mutex> lock(room().mutex);
	k->state = GONE;
	room().kernels.remove(k);
	room().changed.notify_all();
}

/* The last kernel of a domain that is not done, or null. The lock is held. */
ResidentPtr last_of(long long domain)
{
	ResidentPtr last;
	for (const ResidentPtr &k : room().kernels)
		if (k->kernel.domain == domain)
			last = k;
	return last;
}

} // namespace

unsigned long long Queue::issue()
{
	std::lock_guard<std::mutex> lock(mutex);
	return issued++;
}

void Queue::await(unsigned long long ticket, Device *device)
{
	std::unique_lock<std::mutex> lock(mutex);
	if (started == ticket)
		return;
	auto change = [&](void (*how)(std::list<Device *> &, Device *)) {
		std::lock_guard<std::mutex> lock(room().mutex);
		how(room().blocked, device);
	};
	change([](std::list<Device *> &list, Device *d) { list.push_back(d); });
	watch(lock, changed, [&] { return started == ticket; });
	change([](std::list<Device *> &list, Device *d) { list.erase(std::find(list.begin(), list.end(), d)); });
}

void Queue::start()
{
	std::lock_guard<std::mutex> lock(mutex);
	started++;
	changed.notify_all();
}

int owners(Device *device) { return std::max(1, device->retained.load()); }

Queue *take_queue(Device *device)
{
	std::lock_guard<std::mutex> lock(device->mutex);
	size_t most = static_cast<size_t>(setting("DYNMO_EMULATE_QUEUES", 32)) * static_cast<size_t>(owners(device));
	auto fewest = std::min_element(device->queues.begin(), device->queues.end(),
	                               [](const Queue &a, const Queue &b) { return a.streams < b.streams; });
	Queue *queue = fewest == device->queues.end() ? nullptr : &*fewest;
	if (!queue || (queue->streams > 0 && device->queues.size() < most))
		queue = &device->queues.emplace_back();
	queue->streams++;
	return queue;
}

} // namespace emulate

using namespace emulate;

extern "C" int dynmo_emulate_enqueue_kernel(CUstream stream, const struct dynmo_emulate_kernel *kernel)
{
	auto k = std::make_shared<Resident>(Resident{*kernel, kernel->name, {kernel->arg, kernel->drop}, current, nullptr});
	if (capturing(stream))
		return CUDA_ERROR_NOT_SUPPORTED;
	launches++;
	{
		std::lock_guard<std::mutex> lock(room().mutex);
		k->before = last_of(kernel->domain);
		room().kernels.push_back(k);
	}
	CUresult status = enqueue(stream, [k] { enter(k); }, nullptr, true);
	if (status == CUDA_SUCCESS)
		status = enqueue(stream, [k] {
			k->kernel.run(k->kernel.arg);
			leave(k);
		});
	if (status != CUDA_SUCCESS)
		leave(k);
	return status;
}

extern "C" void dynmo_emulate_wake(void)
{
	std::lock_guard<std::mutex> lock(room().mutex);
	room().changed.notify_all();
}

extern "C" void dynmo_emulate_grouped(long long operations)
{
	std::lock_guard<std::mutex> lock(room().mutex);
	room().counts.operations += operations;
	room().counts.groups++;
}

extern "C" void dynmo_emulate_counted(struct dynmo_emulate_counts *counts)
{
	std::lock_guard<std::mutex> lock(room().mutex);
	*counts = room().counts;
}
