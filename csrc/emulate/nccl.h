/* The communicators of nccl.cpp, the stand-in for NCCL. */
#ifndef DYNMO_EMULATE_NCCL_H
#define DYNMO_EMULATE_NCCL_H

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace nccl {

enum Result {
	success,
	cuda_error,
	system_error,
	internal_error,
	invalid_argument,
	invalid_usage,
	remote_error,
	in_progress
};

struct Operation {
	bool sends;
	void *buf;
	int64_t bytes;
	int peer;
	float *sum = nullptr; /* of a receive: its numbers are added to these, or replace them if they come from rank 0 */
};

/* An environment variable as a number. */
long setting(const char *name, long otherwise);

inline long version() { return setting("DYNMO_EMULATE_NCCL_VERSION", 22602); }

constexpr int no_color = -1; /* NCCL_SPLIT_NOCOLOR */

/* The wishes of a configuration. */
struct Options {
	bool blocking = true;
	int ctas = 32;      /* that a kernel takes: maxCTAs */
	bool share = false; /* splitShare: parts of the communicator share its resources */
};

class Communicator;

/* Communicators of one rank that share resources: their kernels run one after the
 * other, as they are enqueued, and who aborts one aborts all. */
struct Domain {
	const long long number;
	std::mutex mutex;
	std::vector<std::weak_ptr<Communicator>> members;
	Domain();
};

/* One rank's side of a communicator. */
class Communicator : public std::enable_shared_from_this<Communicator> {
public:
	Communicator(std::string name, int rank, int ranks, Options options, std::shared_ptr<Domain> domain);
	~Communicator();

	static std::shared_ptr<Communicator> make(std::string name, int rank, int ranks, Options options,
	                                          std::shared_ptr<Domain> domain = std::make_shared<Domain>());

	const int rank, ranks;
	const Options options;

	int begin(std::function<int()> work, bool job = true);
	int state() const { return status; }
	const char *complaint() const { return text; }
	int fail(int result, const char *format, ...) __attribute__((format(printf, 3, 4)));

	int connect();
	int issue(void *stream, std::vector<Operation> operations);
	void run(const std::vector<Operation> &operations);
	bool ended() const { return aborted || hangs; }
	void hang();
	int split(int color, int key, Options wanted, std::shared_ptr<Communicator> *part);
	std::shared_ptr<Communicator> shrink(const int *excluded, int count);
	int finalize();
	void abort();
	void join() {
		if (helper.joinable()) helper.join();
	}

private:
	std::string name;
	const std::shared_ptr<Domain> domain;
	std::vector<int> out, in; /* sockets by peer: where this rank sends, and receives */
	std::mutex mutex;         /* of the sockets while they are made */
	std::thread helper;
	std::atomic<int> status{success}, active{0};
	std::atomic<bool> aborted{false}, hangs{false};
	std::atomic<bool> kept{false}; /* the state of the last job is still its thread's */
	std::vector<bool> met;         /* peers with which a message has been exchanged */
	char text[256] = "";
	int parts = 0;
	bool finalized = false;

	int claim();
	bool keep(std::vector<int> &fds, int peer, int fd);
	int reach(int peer);
	void transfer(const Operation &o);
	void copy(const std::vector<Operation> &operations);
	void give_up();
};

} // namespace nccl

#endif
