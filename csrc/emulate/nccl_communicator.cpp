#include "nccl.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>

#include "hooks.h"

namespace nccl {

long setting(const char *name, long otherwise) {
	const char *text = getenv(name);
	return text == nullptr || *text == 0 ? otherwise : atol(text);
}

namespace {

bool give(int fd, const void *data, size_t bytes) {
	auto at = static_cast<const char *>(data);
	while (bytes > 0) {
		ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
		if (n <= 0) return false;
		at += n, bytes -= n;
	}
	return true;
}

bool take(int fd, void *data, size_t bytes) {
	auto at = static_cast<char *>(data);
	while (bytes > 0) {
		ssize_t n = recv(fd, at, bytes, MSG_WAITALL);
		if (n <= 0) return false;
		at += n, bytes -= n;
	}
	return true;
}

void pause_us(unsigned us) { usleep(us); }

sockaddr_un address(const std::string &name, socklen_t *length) {
	sockaddr_un a{};
	a.sun_family = AF_UNIX;
	size_t n = std::min(name.size(), sizeof a.sun_path - 1);
	memcpy(a.sun_path + 1, name.data(), n); /* a first byte of 0: no file */
	*length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + n);
	return a;
}

} // namespace

Domain::Domain() : number([] {
	static std::atomic<long long> made;
	return ++made;
}()) {}

Communicator::Communicator(std::string name, int rank, int ranks, Options options, std::shared_ptr<Domain> domain)
    : rank(rank), ranks(ranks), options(options), name(std::move(name)), domain(std::move(domain)), out(ranks, -1),
      in(ranks, -1), met(ranks) {
	dynmo_emulate_communicators(1);
}

std::shared_ptr<Communicator> Communicator::make(std::string name, int rank, int ranks, Options options,
                                                 std::shared_ptr<Domain> domain) {
	auto made = std::make_shared<Communicator>(std::move(name), rank, ranks, options, domain);
	std::lock_guard<std::mutex> lock(domain->mutex);
	domain->members.push_back(made);
	return made;
}

Communicator::~Communicator() {
	dynmo_emulate_communicators(-1);
	for (auto *fds : {&out, &in})
		for (int fd : *fds)
			if (fd >= 0) close(fd);
}

namespace {
/* The communicator of this thread's last job. */
thread_local std::weak_ptr<Communicator> last;
} // namespace

/* Takes this thread's state for a call, up to 2.26. Returns a result. */
int Communicator::claim() {
	auto other = last.lock();
	if (other && other.get() != this && version() < 22703) {
		bool running = other->status == in_progress;
		bool taken = other->kept && version() >= 21900 && version() < 22300;
		if (running || taken) {
			const char *what = running ? "is under way" : "still has the thread's state";
			if (version() >= 21900)
				other->fail(internal_error, "its group's state is another communicator's");
			return fail(invalid_usage, "called while a group of another communicator of this thread %s", what);
		}
	}
	kept = false;
	return success;
}

/* Does work at once, or in a thread if the communicator is non-blocking and the work is a
 * job. */
int Communicator::begin(std::function<int()> work, bool job) {
	if (status == in_progress) return fail(invalid_usage, "called before it was ready");
	if (status != success) return status;
	join();
	if (options.blocking) return work();
	if (int result = claim(); result != success || !job) return result != success ? result : work();
	last = shared_from_this();
	kept = true;
	status = in_progress;
	CUcontext context = nullptr;
	cuCtxGetCurrent(&context);
	helper = std::thread([self = shared_from_this(), work = std::move(work), context] {
		cuCtxSetCurrent(context);
		int result = work(), expected = in_progress;
		self->status.compare_exchange_strong(expected, result);
	});
	return in_progress;
}

/* Sets the error of the communicator, unless it was aborted or has one. */
int Communicator::fail(int result, const char *format, ...) {
	if (ended()) return result;
	char what[200];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(what, sizeof what, format, arguments);
	va_end(arguments);
	fprintf(stderr, "emulated NCCL: rank %d of %d: %s\n", rank, ranks, what);
	if (status == success || status == in_progress) {
		snprintf(text, sizeof text, "%s", what);
		status = result;
	}
	return result;
}

/* Remembers a socket; returns false if the communicator was aborted. */
bool Communicator::keep(std::vector<int> &fds, int peer, int fd) {
	std::lock_guard<std::mutex> lock(mutex);
	fds[peer] = fd;
	return !aborted;
}

/* Connects to a peer as soon as it listens, and tells it who calls. */
int Communicator::reach(int peer) {
	socklen_t length;
	sockaddr_un a = address(name + "." + std::to_string(peer), &length);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	while (::connect(fd, reinterpret_cast<sockaddr *>(&a), length) != 0) {
		if (aborted) {
			close(fd);
			return internal_error;
		}
		pause_us(500);
	}
	return keep(out, peer, fd) && give(fd, &rank, sizeof rank) ? success : internal_error;
}

/* Joins all ranks. It returns when all have called it, or after abort. */
int Communicator::connect() {
	socklen_t length;
	sockaddr_un a = address(name + "." + std::to_string(rank), &length);
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(listener, reinterpret_cast<sockaddr *>(&a), length) != 0 || listen(listener, ranks) != 0) {
		close(listener);
		return fail(system_error, "its place in the communicator is taken: %s", strerror(errno));
	}
	int result = success;
	for (int peer = 0; peer < ranks && result == success; peer++)
		if (peer != rank) result = reach(peer);
	for (int left = ranks - 1; left > 0 && result == success && !aborted;) {
		pollfd ready{listener, POLLIN, 0};
		if (poll(&ready, 1, 10) <= 0) continue;
		int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), peer;
		if (fd < 0 || !take(fd, &peer, sizeof peer) || !keep(in, peer, fd)) result = internal_error;
		left--;
	}
	close(listener);
	return result;
}

/* One message. The receiver first says how many bytes it wants. */
void Communicator::transfer(const Operation &o) {
	int64_t other = 0;
	int fd = o.sends ? out[o.peer] : in[o.peer];
	bool ok = o.bytes != setting("DYNMO_EMULATE_NCCL_FAULT", -1) || !o.sends;
	if (!ok) {
		fail(remote_error, "injected fault in a message of %lld bytes", (long long)o.bytes);
		return;
	}
	if (o.sends)
		ok = give(fd, &o.bytes, sizeof o.bytes) && take(fd, &other, sizeof other);
	else
		ok = take(fd, &other, sizeof other) && give(fd, &o.bytes, sizeof o.bytes);
	if (ok && other != o.bytes) {
		fail(invalid_usage, "%s %lld bytes, but rank %d %s %lld", o.sends ? "sends" : "receives", (long long)o.bytes,
		     o.peer, o.sends ? "receives" : "sends", (long long)other);
		return;
	}
	if (ok) ok = o.sends ? give(fd, o.buf, o.bytes) : take(fd, o.buf, o.bytes);
	if (!ok) fail(remote_error, "rank %d is gone in a message of %lld bytes", o.peer, (long long)o.bytes);
}

/* Messages of a rank to itself: the first sent is the first received. */
void Communicator::copy(const std::vector<Operation> &operations) {
	std::vector<Operation> sends, recvs;
	for (const Operation &o : operations)
		if (o.peer == rank) (o.sends ? sends : recvs).push_back(o);
	if (sends.size() != recvs.size()) {
		fail(invalid_usage, "%zu messages to itself, but %zu receives", sends.size(), recvs.size());
		return;
	}
	for (size_t i = 0; i < sends.size(); i++) {
		if (sends[i].bytes != recvs[i].bytes) {
			fail(invalid_usage, "sends itself %lld bytes, but receives %lld", (long long)sends[i].bytes,
			     (long long)recvs[i].bytes);
			return;
		}
		memmove(recvs[i].buf, sends[i].buf, sends[i].bytes);
	}
}

/* Does the operations of a group: all peers and both directions at once. */
void Communicator::run(const std::vector<Operation> &operations) {
	std::map<std::pair<bool, int>, std::vector<Operation>> queues;
	for (const Operation &o : operations)
		if (o.peer != rank) queues[{o.sends, o.peer}].push_back(o);
	if (!ended()) {
		std::vector<std::thread> threads;
		for (const auto &q : queues)
			threads.emplace_back([this, &q] {
				for (const Operation &o : q.second) transfer(o);
			});
		copy(operations);
		for (std::thread &t : threads) t.join();
	}
	for (const Operation &o : operations) { /* in the order of ranks */
		if (o.sum == nullptr) continue;
		auto *x = static_cast<float *>(o.buf);
		for (size_t i = 0; i < o.bytes / sizeof(float); i++) o.sum[i] = o.peer == 0 ? x[i] : o.sum[i] + x[i];
		free(x);
	}
	active--;
}

/* A group of operations on its way. */
struct Batch {
	std::shared_ptr<Communicator> comm;
	std::vector<Operation> operations;

	static Batch *of(void *batch) { return static_cast<Batch *>(batch); }
	static void run(void *batch) { of(batch)->comm->run(of(batch)->operations); }
	static int gone(void *batch) { return of(batch)->comm->ended(); }
	static void fail(void *batch) { of(batch)->comm->hang(); }
	static void drop(void *batch) { delete of(batch); }

	std::string name() const {
		std::string text = "rank " + std::to_string(comm->rank) + " of " + std::to_string(comm->ranks);
		for (const Operation &o : operations)
			text += (o.sends ? ", to " : ", from ") + std::to_string(o.peer);
		return text;
	}
};

int Communicator::issue(void *stream, std::vector<Operation> operations) {
	if (finalized) return fail(invalid_usage, "a message after finalize");
	bool job = version() >= 22300;
	for (const Operation &o : operations) {
		if (o.peer < 0 || o.peer >= ranks || o.bytes < 0) return invalid_argument;
		job = job || !met[o.peer];
		met[o.peer] = true;
	}
	return begin([self = shared_from_this(), stream, operations = std::move(operations), job] {
		if (!self->options.blocking && job) pause_us(std::random_device{}() % 300); /* what is too early on a stream then shows */
		self->active++;
		auto batch = new Batch{self, operations};
		std::string name = batch->name();
		dynmo_emulate_kernel kernel{name.c_str(), self->domain->number, self->options.ctas, Batch::run, Batch::gone,
		                            Batch::fail, Batch::drop, batch};
		int status = dynmo_emulate_enqueue_kernel(static_cast<CUstream>(stream), &kernel);
		if (status == 0) return static_cast<int>(success);
		self->active--;
		return self->fail(cuda_error, "the stream refuses work with status %d", status);
	}, job);
}

/* Tells all ranks this one's color and key, and joins those of equal color, if any. */
int Communicator::split(int color, int key, Options wanted, std::shared_ptr<Communicator> *part) {
	int mine[2] = {color, key};
	for (int peer = 0; peer < ranks; peer++)
		if (peer != rank && !give(out[peer], mine, sizeof mine)) return remote_error;
	std::vector<std::pair<int, int>> members;
	for (int peer = 0; peer < ranks; peer++) {
		int theirs[2] = {color, key};
		if (peer != rank && !take(in[peer], theirs, sizeof theirs)) return remote_error;
		if (theirs[0] == color) members.emplace_back(theirs[1], peer);
	}
	int number = parts++;
	if (color == no_color) return success;
	std::sort(members.begin(), members.end());
	auto place = std::find(members.begin(), members.end(), std::make_pair(key, rank)) - members.begin();
	std::string child = name + "/" + std::to_string(number) + "," + std::to_string(color);
	*part = make(child, static_cast<int>(place), static_cast<int>(members.size()), wanted,
	             options.share ? domain : std::make_shared<Domain>());
	return (*part)->connect();
}

std::shared_ptr<Communicator> Communicator::shrink(const int *excluded, int count) {
	auto below = std::count_if(excluded, excluded + count, [this](int e) { return e < rank; });
	std::string child = name + "/" + std::to_string(parts++);
	return make(child, rank - static_cast<int>(below), ranks - count, options);
}

/* Waits for what is under way, and for all ranks. */
int Communicator::finalize() {
	while (active > 0 && !aborted) pause_us(100);
	char bye = 0;
	for (int fd : out)
		if (fd >= 0 && !give(fd, &bye, 1)) return fail(remote_error, "a rank is gone before finalize");
	for (int fd : in)
		if (fd >= 0 && !take(fd, &bye, 1)) return fail(remote_error, "a rank is gone in finalize");
	finalized = true;
	return success;
}

/* Ends what is under way on the GPU. */
void Communicator::give_up() {
	{
		std::lock_guard<std::mutex> lock(mutex);
		for (auto *fds : {&out, &in})
			for (int fd : *fds)
				if (fd >= 0) shutdown(fd, SHUT_RDWR);
	}
	dynmo_emulate_wake();
}

void Communicator::hang() {
	fail(internal_error, "hangs on the GPU");
	hangs = true;
	give_up();
}

void Communicator::abort() {
	if (version() < 21900 && status == in_progress && last.lock().get() != this) {
		fprintf(stderr, "emulated NCCL: aborted by another thread than that of its group, whose state NCCL would free\n");
		std::abort();
	}
	{
		std::lock_guard<std::mutex> lock(domain->mutex);
		for (auto &member : domain->members)
			if (auto m = member.lock()) {
				m->aborted = true;
				m->give_up();
			}
	}
	join();
}

} // namespace nccl
