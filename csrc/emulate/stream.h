/* Devices, streams and events of the emulated driver. A stream is a worker thread
 * with a queue; an event is a point in a stream. */
#ifndef DYNMO_EMULATE_STREAM_H
#define DYNMO_EMULATE_STREAM_H

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "hooks.h"

namespace emulate {

/* An environment variable as a number. */
long long setting(const char *name, long long otherwise);

/* Work of a stream, done once or, in a graph, many times. */
using Work = std::function<void()>;
using Chain = std::vector<Work>; /* one after the other */

/* A point in a stream, which it reaches once. */
class Point {
	std::mutex mutex;
	std::condition_variable changed;
	bool done = false;
	double when = 0;

public:
	void reach();
	void wait();
	bool reached();
	double seconds() const { return when; } /* of a steady clock, once reached */
};
using PointPtr = std::shared_ptr<Point>;

struct Device;

struct Stream;

/* A hardware queue. Work of its streams starts in the order of issue: what waits for
 * earlier work of its own stream holds up all streams behind it. */
class Queue {
	std::mutex mutex;
	std::condition_variable changed;
	unsigned long long issued = 0, started = 0;

public:
	int streams = 0;
	unsigned long long issue();                           /* returns a ticket */
	void await(unsigned long long ticket, Device *device); /* until all work before it has started */
	void start();
};

/* A device and its primary context. */
struct Device {
	int ordinal = 0;
	std::mutex mutex; /* of queues and their numbers of streams */
	std::deque<Queue> queues;
	std::atomic<int> retained{0};
	unsigned flags = 0;
	size_t used = 0;           /* bytes of device memory */
	std::atomic<int> error{0}; /* sticky */
	std::shared_ptr<Stream> null;
};

struct Stream {
	Device *device;
	unsigned flags;
	int priority;

	Stream(Device *device, unsigned flags, int priority);
	~Stream();
	void push(Work work, bool waits = false); /* waits: it starts when it is done */
	PointPtr mark(); /* at the end of what was pushed */
	bool idle();
	void close(); /* once all work is done */
	void serve(); /* the worker thread */

private:
	struct Item {
		Work work;
		bool waits;
		unsigned long long ticket;
	};
	std::mutex mutex;
	std::condition_variable changed;
	std::deque<Item> queue;
	Queue *hardware;
	bool busy = false, closing = false, ended = false;
	PointPtr tail; /* the last mark, if nothing was pushed after it */
	std::minstd_rand random;

	void sleep();
};

std::shared_ptr<Stream> open_stream(Device *device, unsigned flags, int priority);

struct Event {
	unsigned flags;
	PointPtr point; /* where it was last recorded, or null */
};

/* A live allocation. */
struct Block {
	size_t bytes;
	unsigned char *mapping;
	size_t mapped;
	Device *device; /* or null: pinned host memory */
};

/* Everything the process has, under one lock; it lives until the process ends. */
struct Driver {
	std::mutex mutex;
	std::deque<Device> devices;
	std::map<CUstream, std::shared_ptr<Stream>> streams;
	std::map<CUevent, std::shared_ptr<Event>> events;
	std::map<uintptr_t, Block> blocks; /* by address */
};
Driver &driver();

extern thread_local Device *current;

extern std::atomic<long long> launches; /* of kernels */
extern std::atomic<long long> progress; /* counts work that is done, of all streams */

/* Returns how many ranks retain the device, at least 1. Ranks that are threads of one process
 * may share a device here, though NCCL refuses that. Each then gets the room of a device. */
int owners(Device *device);

/* The queue of the device with the fewest streams, for one more. */
Queue *take_queue(Device *device);

/* Success, or why no call can be made now. */
CUresult ready();

/* The stream of a handle, or null. */
std::shared_ptr<Stream> find_stream(CUstream handle);

/* Puts work, if any, on a stream. 0 is the null stream: it and the streams that are not
 * non-blocking wait for each other. *end becomes the point after the work. A stream that
 * captures keeps the work and sets no point. Work that waits does not count as work of
 * the device until it is done. */
CUresult enqueue(CUstream stream, Work work, PointPtr *end = nullptr, bool waits = false);

/* Whether a stream captures; then capture keeps work, and spoil ends in why. */
bool capturing(CUstream stream);
CUresult capture(CUstream stream, Work work);
CUresult spoil(CUstream stream, CUresult why);

/* Returns success, or why a call that allocates or waits cannot be made now: a capture of
 * this thread, or, for a call on all of a device, any capture on the device. The call
 * spoils the capture. */
CUresult unbound(Device *device = nullptr);

/* Waits for all streams of a device. */
void drain(Device *device);

/* The result of a call that has waited. */
CUresult waited(Device *device);

/* The allocation that holds all of a range, or null. The lock is held. */
const Block *find_block(uintptr_t at, size_t bytes);

/* Frees what a device still holds. The lock is held. */
void free_blocks(Device *device);

} // namespace emulate

#endif
