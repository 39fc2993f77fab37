#include "stream.h"

#include <csignal>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace emulate {

thread_local Device *current;

long long setting(const char *name, long long otherwise)
{
	const char *text = getenv(name);
	return text ? atoll(text) : otherwise;
}

void Point::reach()
{
	std::lock_guard<std::mutex> lock(mutex);
	when = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
	done = true;
	changed.notify_all();
}

void Point::wait()
{
	std::unique_lock<std::mutex> lock(mutex);
	changed.wait(lock, [&] { return done; });
}

bool Point::reached()
{
	std::lock_guard<std::mutex> lock(mutex);
	return done;
}

Stream::Stream(Device *d, unsigned flags, int priority)
    : device(d), flags(flags), priority(priority), hardware(take_queue(d))
{
	static std::atomic<unsigned> streams;
	random.seed(static_cast<unsigned>(setting("DYNMO_EMULATE_JITTER", 0)) + streams++);
}

Stream::~Stream()
{
	std::lock_guard<std::mutex> lock(device->mutex);
	hardware->streams--;
}

void Stream::push(Work work, bool waits)
{
	std::lock_guard<std::mutex> lock(mutex);
	queue.push_back({std::move(work), waits, hardware->issue()});
	tail = nullptr;
	changed.notify_all();
}

PointPtr Stream::mark()
{
	auto point = std::make_shared<Point>();
	std::lock_guard<std::mutex> lock(mutex);
	if (closing && queue.empty() && !busy) { /* another thread has closed it: nobody serves it any more */
		point->reach();
		return point;
	}
	queue.push_back({[point] { point->reach(); }, false, hardware->issue()});
	tail = point;
	changed.notify_all();
	return point;
}

bool Stream::idle()
{
	std::lock_guard<std::mutex> lock(mutex);
	return (queue.empty() && !busy) || (tail && tail->reached());
}

void Stream::close()
{
	std::lock_guard<std::mutex> lock(mutex);
	closing = true;
	changed.notify_all();
}

/* With DYNMO_EMULATE_JITTER work begins up to 0.3 ms late, one time in four, so
 * that an order that no event enforces shows. */
void Stream::sleep()
{
	static const bool jitter = getenv("DYNMO_EMULATE_JITTER");
	if (jitter && random() % 4 == 0)
		std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
}

void Stream::serve()
{
	current = device;
	std::unique_lock<std::mutex> lock(mutex);
	for (;;) {
		changed.wait(lock, [&] { return closing || !queue.empty(); });
		if (queue.empty()) {
			ended = true;
			return;
		}
		Item item = std::move(queue.front());
		queue.pop_front();
		busy = true;
		lock.unlock();
		hardware->await(item.ticket, device);
		if (!item.waits)
			hardware->start();
		sleep();
		item.work();
		item.work = nullptr;
		if (item.waits)
			hardware->start();
		progress++;
		lock.lock();
		busy = false;
	}
}

/* Signals of the process are for its own threads; faults are a worker's own. */
std::shared_ptr<Stream> open_stream(Device *device, unsigned flags, int priority)
{
	auto stream = std::make_shared<Stream>(device, flags, priority);
	sigset_t all, before;
	sigfillset(&all);
	for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
		sigdelset(&all, fault);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	std::thread([stream] { stream->serve(); }).detach();
	pthread_sigmask(SIG_SETMASK, &before, nullptr);
	return stream;
}

} // namespace emulate
