/* A stand-in for libnccl.so.2, for tests without a GPU: the functions that
 * csrc/nccl/library.h lists, between threads and processes of one host.
 *
 * Unix sockets join the ranks of a communicator, one for each ordered pair. Their
 * abstract names begin with the unique id. The operations of a group are one kernel
 * on an emulated stream. As in NCCL, the kernel blocks its stream until all other
 * sides have come to the operations. CTAs and order are those of NCCL at its worst
 * (src/enqueue.cc of 2.18 to 2.29). A kernel takes as many CTAs as its communicator
 * may take, and needs all of them at once. It waits for the kernel before it, of its
 * communicator and of those that share resources with it, on any stream. Sharing
 * follows NCCL's src/init.cc: a part shares the resources of its communicator if the
 * configuration of the communicator, not of the part, has splitShare.
 *
 * Sizes that differ, and all that NCCL calls undefined, are reported on stderr and become
 * the communicator's error. A call on a non-blocking communicator begins a job, which a
 * helper thread does a little later. Up to 2.26 NCCL keeps the state of a job in the
 * calling thread, and the helper works on that state (ncclGroupJobMain, src/group.cc).
 * Another communicator must not use the thread meanwhile:
 *
 *   up to 2.18    only first messages to a peer are jobs; a call for another communicator
 *                 during a job is refused (ncclGroupStartInternal, src/include/group.h)
 *   2.19 to 2.22  the same messages are jobs; the state stays taken until the next call for
 *                 the same communicator (ncclCommEnsureReady, src/init.cc)
 *   2.23 to 2.26  every group is a job; ncclCommGetAsyncError gives the state back
 *   from 2.27     every job has a state of its own
 *
 * DYNMO_EMULATE_NCCL_VERSION  the result of ncclGetVersion (22602)
 * DYNMO_EMULATE_NCCL_FAULT    messages of this number of bytes fail on one side */
#include "nccl.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>

#include "hooks.h"

using namespace nccl;

#define API extern "C" __attribute__((visibility("default")))

struct Id {
	char text[128];
};

struct Config { /* as in version 2.26 */
	size_t size;
	unsigned magic, version;
	int blocking;
	int cluster, least, most; /* cgaClusterSize, minCTAs, maxCTAs: since 2.17 */
	const char *net;
	int share; /* splitShare, since 2.18 */
	int traffic; /* trafficClass, since 2.26 */
};

/* A handle that a user of NCCL holds. */
struct ncclComm {
	std::shared_ptr<Communicator> self;
};

namespace {

/* Reads a configuration as a library of this version does: as many bytes as both know
 * of, and members that its user's version had. Returns a result. */
int read(const Config *given, Options *options) {
	constexpr int unset = INT_MIN, most_ctas = 32;
	Config c{0, 0, 0, unset, unset, unset, unset, nullptr, unset, unset};
	size_t known = version() < 21700   ? offsetof(Config, least)
	               : version() < 21800 ? offsetof(Config, share)
	               : version() < 22600 ? offsetof(Config, traffic)
	                                   : sizeof c;
	memcpy(&c, given, std::min(given->size, known));
	if (c.magic != 0xcafebeef) return invalid_argument;
	if (c.version < 21700 || version() < 21700) c.least = c.most = unset;
	auto flag = [](int value) { return value == unset || value == 0 || value == 1; };
	bool ordered = c.least <= c.most && (c.least == unset || c.least > 0) && (c.most == unset || c.most > 0);
	if (!flag(c.blocking) || !flag(c.share) || !ordered || c.traffic != unset) return invalid_argument;
	options->blocking = c.blocking != 0;
	options->ctas = c.most == unset ? most_ctas : std::min(c.most, most_ctas);
	options->share = c.share == 1;
	return success;
}

struct Waiting {
	ncclComm *comm;
	void *stream;
	Operation operation;
};
thread_local std::vector<Waiting> group;
thread_local int depth;

/* Issues the operations of a group: those of a communicator as one kernel. */
int end_group() {
	std::vector<std::pair<ncclComm *, void *>> order;
	std::map<ncclComm *, std::vector<Operation>> batches;
	int result = success;
	for (const Waiting &w : group) {
		auto &batch = batches[w.comm];
		if (batch.empty()) order.emplace_back(w.comm, w.stream);
		for (auto &o : order)
			if (o.first == w.comm && o.second != w.stream)
				result = w.comm->self->fail(invalid_usage, "the emulator wants a group's operations on one stream");
		batch.push_back(w.operation);
	}
	if (!group.empty()) dynmo_emulate_grouped(static_cast<long long>(group.size()));
	group.clear();
	for (auto &o : order) {
		int status = o.first->self->issue(o.second, std::move(batches[o.first]));
		if (status != success && (result == success || result == in_progress)) result = status;
	}
	return result;
}

int enqueue(Operation o, ncclComm *comm, void *stream) {
	group.push_back({comm, stream, o});
	return depth > 0 ? success : end_group();
}

int64_t size_of(int type) {
	static const int sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2}; /* char … double, bfloat16 */
	return sizes[type];
}

} // namespace

API int ncclGetVersion(int *code) {
	*code = static_cast<int>(version());
	return success;
}

API const char *ncclGetErrorString(int result) {
	static const char *const names[] = {
	    "no error",         "unhandled cuda error", "unhandled system error",
	    "internal error",   "invalid argument",     "invalid usage",
	    "remote process exited or there was a network error", "NCCL operation in progress",
	};
	return result >= success && result <= in_progress ? names[result] : "unknown result code";
}

API const char *ncclGetLastError(ncclComm *comm) { return comm == nullptr ? "" : comm->self->complaint(); }

API int ncclGetUniqueId(Id *id) {
	std::random_device random;
	memset(id, 0, sizeof *id);
	snprintf(id->text, sizeof id->text, "dynmo-nccl-%d-%08x%08x", getpid(), random(), random());
	return success;
}

API int ncclCommInitRankConfig(ncclComm **comm, int ranks, Id id, int rank, const Config *config) {
	Options options;
	if (rank < 0 || rank >= ranks || read(config, &options) != success) return invalid_argument;
	*comm = new ncclComm{Communicator::make(id.text, rank, ranks, options)};
	return (*comm)->self->begin([self = (*comm)->self.get()] { return self->connect(); });
}

API int ncclCommGetAsyncError(ncclComm *comm, int *result) {
	*result = comm->self->state();
	return success;
}

API int ncclSend(const void *buf, size_t count, int type, int peer, ncclComm *comm, void *stream) {
	return enqueue({true, const_cast<void *>(buf), static_cast<int64_t>(count) * size_of(type), peer}, comm, stream);
}

API int ncclRecv(void *buf, size_t count, int type, int peer, ncclComm *comm, void *stream) {
	return enqueue({false, buf, static_cast<int64_t>(count) * size_of(type), peer}, comm, stream);
}

API int ncclGroupStart();
API int ncclGroupEnd();

API int ncclAllReduce(const void *in, void *out, size_t count, int type, int op, ncclComm *comm, void *stream) {
	constexpr int of_float = 7, sum = 0;
	if (type != of_float || op != sum)
		return comm->self->fail(invalid_argument, "the emulator adds floats");
	auto bytes = static_cast<int64_t>(count * sizeof(float));
	ncclGroupStart();
	for (int peer = 0; peer < comm->self->ranks; peer++) {
		enqueue({true, const_cast<void *>(in), bytes, peer}, comm, stream);
		enqueue({false, malloc(bytes), bytes, peer, static_cast<float *>(out)}, comm, stream);
	}
	return ncclGroupEnd();
}

API int ncclGroupStart() {
	depth++;
	return success;
}

API int ncclGroupEnd() { return --depth > 0 ? static_cast<int>(success) : end_group(); }

API int ncclCommSplit(ncclComm *comm, int color, int key, ncclComm **part, const Config *config) {
	Options options = comm->self->options;
	if (color < no_color || (config != nullptr && read(config, &options) != success)) return invalid_argument;
	*part = nullptr;
	return comm->self->begin([self = comm->self.get(), color, key, options, part] {
		std::shared_ptr<Communicator> made;
		int result = self->split(color, key, options, &made);
		if (result == success && made) __atomic_store_n(part, new ncclComm{made}, __ATOMIC_RELEASE);
		return result;
	});
}

API int ncclCommShrink(ncclComm *comm, int *excluded, int count, ncclComm **rest, const Config *, int) {
	std::vector<int> without(excluded, excluded + count);
	return comm->self->begin([self = comm->self.get(), without, rest] {
		auto made = self->shrink(without.data(), static_cast<int>(without.size()));
		int result = made->connect();
		if (result == success) __atomic_store_n(rest, new ncclComm{made}, __ATOMIC_RELEASE);
		return result;
	});
}

API int ncclCommFinalize(ncclComm *comm) {
	return comm->self->begin([self = comm->self.get()] { return self->finalize(); });
}

API int ncclCommDestroy(ncclComm *comm) {
	int result = comm->self->state();
	if (result == in_progress) return comm->self->fail(invalid_usage, "destroyed before it was ready");
	comm->self->join();
	delete comm;
	return result;
}

API int ncclCommAbort(ncclComm *comm) {
	comm->self->abort();
	delete comm;
	return success;
}
