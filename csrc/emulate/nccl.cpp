/* A stand-in for libnccl.so.2, for tests where there is no GPU: what
 * csrc/nccl/library.h lists, between threads and processes of one host.
 *
 * The ranks of a communicator are joined by Unix sockets, one for each ordered
 * pair, under abstract names that begin with the unique id. A message is an
 * operation of an emulated stream and, as in NCCL, holds its stream up until
 * both sides have come to it. Sizes that differ, and whatever NCCL calls
 * undefined, are told on stderr and become the communicator's error. On a
 * non-blocking communicator everything happens a little later, in a thread.
 *
 * DYNMO_EMULATE_NCCL_VERSION  what ncclGetVersion says (21800)
 * DYNMO_EMULATE_NCCL_FAULT    messages of so many bytes fail on one side */
#include "nccl.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <random>

using namespace nccl;

#define API extern "C" __attribute__((visibility("default")))

struct Id {
	char text[128];
};

struct Config { /* as far as version 2.14 had it */
	size_t size;
	unsigned magic, version;
	int blocking;
};

/* A handle that a user of NCCL holds. */
struct ncclComm {
	std::shared_ptr<Communicator> self;
};

namespace {

struct Waiting {
	ncclComm *comm;
	void *stream;
	Operation operation;
};
thread_local std::vector<Waiting> group;
thread_local int depth;

int end_group() {
	std::map<std::pair<ncclComm *, void *>, std::vector<Operation>> batches;
	for (const Waiting &w : group) batches[{w.comm, w.stream}].push_back(w.operation);
	group.clear();
	int result = success;
	for (auto &b : batches) {
		int status = b.first.first->self->issue(b.first.second, std::move(b.second));
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

API int ncclGetVersion(int *version) {
	*version = static_cast<int>(setting("DYNMO_EMULATE_NCCL_VERSION", 21800));
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
	if (config->magic != 0xcafebeef || config->size < sizeof *config || rank < 0 || rank >= ranks) return invalid_argument;
	*comm = new ncclComm{std::make_shared<Communicator>(id.text, rank, ranks, config->blocking != 0)};
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

API int ncclGroupStart() {
	depth++;
	return success;
}

API int ncclGroupEnd() { return --depth > 0 ? static_cast<int>(success) : end_group(); }

API int ncclCommSplit(ncclComm *comm, int color, int key, ncclComm **part, const Config *) {
	return comm->self->begin([self = comm->self.get(), color, key, part] {
		std::shared_ptr<Communicator> made;
		int result = self->split(color, key, &made);
		if (result == success) __atomic_store_n(part, new ncclComm{made}, __ATOMIC_RELEASE);
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
