/* Runs a kernel: its blocks one after another, the threads of a block as fibers
 * of this host thread. A fiber runs until it waits or ends. A warp runs until all
 * its lanes wait for others or have ended, then the next warp; when all have,
 * the barrier opens. DYNMO_EMULATE_ORDER is the order of warps, lanes and blocks:
 * forward (the default), reverse or random:SEED. No result may depend on it. It is
 * read at every launch, so that a test can compare orders. */
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include <csetjmp>
#include <csignal>
#include <sys/mman.h>
#include <unistd.h>

#include "device.h"
#include "hooks.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

/* Saves the callee's registers and the stack in *save, and goes on where the stack
 * that was saved as resume left off. A jump is predicted where a return is not. */
extern "C" void dynmo_emulate_switch(void **save, void *resume);
asm(R"(
.text
.hidden dynmo_emulate_switch
.globl dynmo_emulate_switch
.type dynmo_emulate_switch, @function
dynmo_emulate_switch:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	popq %rcx
	jmp *%rcx
.size dynmo_emulate_switch, .-dynmo_emulate_switch
)");

namespace emulate {

unsigned char *dynamic_shared;
uint64_t block_number;
bool (*copies_left)();

namespace {

enum State { START, READY, WARP, BLOCK, UNTIL, ENDED };

constexpr size_t page = 4096, stack_bytes = 128 * 1024, shared_bytes = 256 * 1024;

struct Fiber {
	void *stack_pointer;
	unsigned char *stack;
	uint3 index;
	State state;
	unsigned mask; /* lanes of the warp operation that the fiber waits in */
	size_t bytes;  /* that the fiber gives to the operation */
	bool (*is)(const void *, unsigned); /* the condition of UNTIL: is(what, how) */
	const void *what;
	unsigned how;
	bool may_run() const { return state == START || state == READY || (state == UNTIL && is(what, how)); }
};

std::mutex one_kernel;
Kernel *kernel;
Fiber fibers[1024], *fiber; /* fiber runs, or null outside kernels */
unsigned threads;           /* of the block */
void *scheduler;            /* its stack pointer while a fiber runs */
Exchange exchanges[32];     /* of each warp */
std::vector<unsigned char *> stacks; /* that no fiber uses */
unsigned char *shared_end;

[[noreturn]] void fail(const char *what)
{
	fprintf(stderr, "dynmo emulator: kernel %s, block (%u, %u, %u) of %u threads: %s\n", kernel->name, blockIdx.x,
	        blockIdx.y, blockIdx.z, threads, what);
	abort();
}

/* Memory whose first and next bytes outside end the process. */
unsigned char *guarded(size_t bytes)
{
	void *p = mmap(nullptr, bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	unsigned char *start = static_cast<unsigned char *>(p) + page;
	if (p == MAP_FAILED || mprotect(start, bytes, PROT_READ | PROT_WRITE))
		fail("no memory for stacks");
	return start;
}

/* A kernel that touches memory that is not there ends, and with it the context. */
struct sigaction before[2]; /* of SIGSEGV, SIGBUS */
pthread_t runner;
sigjmp_buf ended;

void on_fault(int signal, siginfo_t *info, void *context)
{
	if (fiber && pthread_equal(pthread_self(), runner)) {
		fprintf(stderr, "dynmo emulator: kernel %s, block (%u, %u, %u), thread (%u, %u, %u): no memory at %p\n",
		        kernel->name, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, info->si_addr);
		siglongjmp(ended, 1);
	}
	const struct sigaction &old = before[signal == SIGBUS];
	if (old.sa_flags & SA_SIGINFO)
		old.sa_sigaction(signal, info, context);
	else
		sigaction(signal, &old, nullptr); /* and the instruction faults again */
}

void catch_faults()
{
	struct sigaction action = {};
	action.sa_sigaction = on_fault;
	action.sa_flags = SA_SIGINFO | SA_ONSTACK;
	sigaction(SIGSEGV, &action, &before[0]);
	sigaction(SIGBUS, &action, &before[1]);
}

/* Where the handler runs, as the fault may be a stack's end. */
void set_signal_stack()
{
	static thread_local std::vector<unsigned char> room;
	if (!room.empty())
		return;
	room.resize(64 * 1024);
	stack_t stack = {};
	stack.ss_sp = room.data();
	stack.ss_size = room.size();
	sigaltstack(&stack, nullptr);
}

/* Visits 0..n-1 in the order asked for. */
class Order {
	enum { FORWARD, REVERSE, RANDOM } kind = FORWARD;
	std::minstd_rand random;

public:
	explicit Order(const std::string &order)
	{
		if (order.rfind("random:", 0) == 0) {
			kind = RANDOM;
			random.seed(static_cast<unsigned>(std::stoul(order.substr(7))));
		} else if (order == "reverse") {
			kind = REVERSE;
		} else if (order != "forward") {
			fprintf(stderr, "dynmo emulator: DYNMO_EMULATE_ORDER=%s: want forward, reverse or random:SEED\n",
			        order.c_str());
			abort();
		}
	}

	/* A random order is a rotation, backwards half of the time. */
	template <typename Visit> void each(unsigned n, Visit visit)
	{
		unsigned first = kind == RANDOM && n > 0 ? static_cast<unsigned>(random() % n) : 0;
		bool back = kind == REVERSE || (kind == RANDOM && random() % 2);
		for (unsigned i = 0; i < n; i++) {
			unsigned at = first + i < n ? first + i : first + i - n;
			visit(back ? n - 1 - at : at);
		}
	}
};

/* The order that the environment asks for now. */
Order &order_now()
{
	static std::string text = "forward";
	static Order order(text);
	const char *wanted = getenv("DYNMO_EMULATE_ORDER");
	if (text != (wanted ? wanted : "forward"))
		order = Order(text = wanted ? wanted : "forward");
	return order;
}

/* Back to the scheduler, until it resumes this fiber. */
void leave() { dynmo_emulate_switch(&fiber->stack_pointer, scheduler); }

void begin()
{
	kernel->thread();
	fiber->state = ENDED;
	stacks.push_back(fiber->stack);
	leave();
}

/* A stack that begins in begin. Stacks start at different cache lines. */
void start(Fiber &f)
{
	static unsigned made;
	if (stacks.empty())
		stacks.push_back(guarded(stack_bytes) + stack_bytes - made++ % 32 * 192);
	f.stack = stacks.back();
	stacks.pop_back();
	void **top = reinterpret_cast<void **>(f.stack);
	*--top = nullptr; /* begin never returns */
	*--top = reinterpret_cast<void *>(begin);
	for (int i = 0; i < 6; i++)
		*--top = nullptr;
	f.stack_pointer = top;
}

void resume(Fiber &f)
{
	if (f.state == START)
		start(f);
	f.state = READY;
	fiber = &f;
	threadIdx = f.index;
	dynmo_emulate_switch(&scheduler, f.stack_pointer);
	fiber = nullptr;
}

/* Whether all lanes of a waiting lane's mask wait in the same operation. */
bool complete(const Fiber *lanes, unsigned n, const Fiber &lane)
{
	for (unsigned i = 0; i < n; i++) {
		if (!(lane.mask >> i & 1))
			continue;
		if (lanes[i].state != WARP || lanes[i].mask != lane.mask)
			return false;
		if (lanes[i].bytes != lane.bytes)
			fail("lanes of a warp meet in different operations");
	}
	return true;
}

/* Readies the lanes whose warp operation is complete, and returns whether there were any.
 * Lanes that were readied earlier have run since, so the warp's `taken` is free. */
bool release(Fiber *lanes, unsigned n, Exchange &warp)
{
	bool any = false;
	for (unsigned i = 0; i < n; i++) {
		if (lanes[i].state != WARP || !complete(lanes, n, lanes[i]))
			continue;
		unsigned mask = lanes[i].mask;
		size_t bytes = lanes[i].bytes;
		for (unsigned j = i; j < n; j++)
			if (mask >> j & 1) {
				lanes[j].state = READY;
				std::memcpy(warp.taken + j * bytes, warp.given + j * bytes, bytes);
			}
		any = true;
	}
	return any;
}

void run_warp(Order &order, Fiber *lanes, unsigned n, Exchange &warp)
{
	do
		order.each(n, [&](unsigned i) {
			if (lanes[i].may_run())
				resume(lanes[i]);
		});
	while (release(lanes, n, warp));
	bool until = false;
	for (unsigned i = 0; i < n; i++)
		until |= lanes[i].state == UNTIL;
	for (unsigned i = 0; i < n; i++)
		if (lanes[i].state == WARP && !until)
			fail("lanes wait in a warp operation that not all lanes of its mask reach");
}

/* Opens the barrier, unless threads can go on without; says whether threads are left. */
bool open_barrier()
{
	unsigned waiting = 0, until = 0;
	for (unsigned i = 0; i < threads; i++) {
		if (fibers[i].state == UNTIL && fibers[i].may_run())
			return true;
		waiting += fibers[i].state == BLOCK;
		until += fibers[i].state == UNTIL;
	}
	if (until != 0)
		fail("threads wait for what no thread does any more");
	if (waiting != 0 && waiting != threads)
		fail("threads wait at __syncthreads that other threads never reach");
	for (unsigned i = 0; i < waiting; i++)
		fibers[i].state = READY;
	return waiting != 0;
}

void run_block(Order &order)
{
	block_number++;
	size_t room = (kernel->shared + 127) / 128 * 128;
	dynamic_shared = shared_end - room;
	std::memset(dynamic_shared, 0xff, room);
	if (threads % warpSize)
		std::memset(&exchanges[threads / warpSize], 0xff, sizeof exchanges[0]);
	for (unsigned i = 0; i < threads; i++)
		fibers[i].state = START;
	do
		order.each((threads + warpSize - 1) / warpSize, [&](unsigned w) {
			unsigned first = w * warpSize, left = threads - first;
			run_warp(order, fibers + first, left < warpSize ? left : warpSize, exchanges[w]);
		});
	while (open_barrier());
	if (copies_left && copies_left())
		fail("a block ended with asynchronous copies that no thread waited for");
}

/* After a fault fibers are left where they were. */
void abandon()
{
	fiber = nullptr;
	for (unsigned i = 0; i < threads; i++)
		if (fibers[i].state != START && fibers[i].state != ENDED)
			stacks.push_back(fibers[i].stack);
	dynmo_emulate_fail(CUDA_ERROR_ILLEGAL_ADDRESS);
}

void number_threads(dim3 block)
{
	threads = 0;
	for (unsigned z = 0; z < block.z; z++)
		for (unsigned y = 0; y < block.y; y++)
			for (unsigned x = 0; x < block.x; x++)
				fibers[threads++].index = uint3{x, y, z};
}

} // namespace

Exchange &exchange() { return exchanges[(fiber - fibers) / warpSize]; }

void sync_warp(unsigned mask, size_t bytes)
{
	unsigned lane = static_cast<unsigned>(fiber - fibers) % warpSize;
	if (!(mask >> lane & 1))
		fail("a lane does a warp operation whose mask leaves it out");
	fiber->mask = mask;
	fiber->bytes = bytes;
	fiber->state = WARP;
	leave();
}

void sync_block()
{
	fiber->state = BLOCK;
	leave();
}

/* A thread whose wait is over already gives way all the same, so that other warps come between. */
void wait_until(bool (*is)(const void *, unsigned), const void *what, unsigned how)
{
	fiber->is = is;
	fiber->what = what;
	fiber->how = how;
	fiber->state = UNTIL;
	leave();
}

void run(Kernel &k)
{
	std::lock_guard<std::mutex> lock(one_kernel);
	Order &order = order_now();
	if (!shared_end) {
		shared_end = guarded(shared_bytes) + shared_bytes;
		catch_faults();
	}
	set_signal_stack();
	runner = pthread_self();
	kernel = &k;
	blockDim = k.block;
	gridDim = k.grid;
	number_threads(k.block);
	if (sigsetjmp(ended, 1))
		return abandon();
	order.each(k.grid.x * k.grid.y * k.grid.z, [&](unsigned b) {
		blockIdx = uint3{b % k.grid.x, b / k.grid.x % k.grid.y, b / k.grid.x / k.grid.y};
		run_block(order);
	});
}

} // namespace emulate
