/* The functions of csrc/cuda/hopper.cuh on the host; that header defines them. Every bit lies
 * where it lies on a GPU. The sums of a product take ascending order; a GPU may take another.
 * A GPU may do some work at any moment up to a wait. Half of such work is done at once here,
 * the other half at the wait. A missing wait, or a buffer that is overwritten while it is
 * still read, then changes results. */
#ifndef DYNMO_EMULATE_HOPPER_H
#define DYNMO_EMULATE_HOPPER_H

#include "mma.h"

/* A matrix, and the rows of a box of it. */
struct alignas(64) tensor_map {
	const __nv_bfloat16 *first;
	int64_t rows, columns;
	int box_rows;
};

namespace emulate {

[[noreturn]] inline void bad_operand(const char *what) {
	fprintf(stderr, "emulator: %s\n", what);
	abort();
}

/* The 64 bits of a barrier, as they are used here. */
struct Barrier {
	uint16_t arrivals, missing, parity, opened; /* of a phase, of this one */
};
constexpr uint16_t OPENED = 0x0be4; /* nothing else in shared memory is likely to be it */
inline int bytes_due[1 << 15]; /* of a barrier, by its place in shared memory */
inline int &due(const void *barrier) { return bytes_due[reinterpret_cast<uintptr_t>(barrier) / 8 % (1 << 15)]; }

inline void turn(Barrier *b) {
	if (b->missing != 0 || due(b) != 0) return;
	b->missing = b->arrivals;
	b->parity ^= 1;
}

inline Barrier *barrier_at(const void *barrier) {
	Barrier *b = static_cast<Barrier *>(const_cast<void *>(barrier));
	if (b->opened != OPENED) bad_operand("a barrier is used before it is set up");
	return b;
}

/* A box on its way. */
struct Box {
	unsigned char *to;
	tensor_map map;
	int channel, row;
	Barrier *barrier;
};
inline std::vector<Box> boxes;

inline void deliver(const Box &box) {
	for (int r = 0; r < box.map.box_rows; r++)
		for (int c = 0; c < 64; c++) {
			int row = box.row + r, column = box.channel + c;
			bool inside = row >= 0 && row < box.map.rows && column >= 0 && column < box.map.columns;
			__nv_bfloat16 x = inside ? box.map.first[row * box.map.columns + column] : __float2bfloat16_rn(0);
			memcpy(box.to + 128 * r + 16 * (c / 8 ^ r % 8) + 2 * (c % 8), &x, sizeof x);
		}
	due(box.barrier) -= 128 * box.map.box_rows;
	turn(box.barrier);
}

inline bool phase_is_over(const void *barrier, unsigned parity) {
	std::vector<Box> others, mine;
	for (const Box &box : boxes) (box.barrier == barrier ? mine : others).push_back(box);
	boxes = others;
	for (const Box &box : mine) deliver(box);
	return barrier_at(barrier)->parity != parity;
}

/* Floats on a thread's way to global memory. They are read, and written, at once or when the thread waits. */
struct Sent {
	unsigned thread;
	float4 *to;
	const float4 *from;
	int count;
	bool add;
	std::vector<float4> read;
};
inline std::vector<Sent> sent;
inline unsigned sends;

inline void read(Sent &s) {
	if (s.read.empty()) s.read.assign(s.from, s.from + s.count);
}
inline void write(const Sent &s) {
	for (int i = 0; i < s.count; i++) {
		float4 x = s.read[i], y = s.add ? s.to[i] : make_float4(0, 0, 0, 0);
		s.to[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
	}
}
/* Lets other threads come between many times, while floats are on their way. */
inline bool is_over(const void *, unsigned) { return true; }
inline void give_way() {
	for (int turn = 0; turn < 64; turn++) wait_until(is_over, nullptr, 0);
}

/* Threads that meet by a number. */
struct Meeting {
	unsigned arrived, times;
};
inline Meeting meetings[16];
inline bool has_met(const void *meeting, unsigned times) { return static_cast<const Meeting *>(meeting)->times != times; }

/* A lane's part of a product: rows g and g+8 of its warp's 16. */
struct Product {
	float *d;
	int n, a_transposed, b_transposed;
	bool add, in_registers;
	float rows[2][16]; /* of a, in registers */
	uint64_t a, b;
	unsigned group;
};
struct Products {
	std::vector<Product> waiting;
	unsigned group = 0; /* the open one */
};
inline Products product_queues[1024]; /* by thread */
inline Products &my_products() { return product_queues[threadIdx.x]; }

/* Element k of row or column i of an operand in shared memory. */
inline float element(uint64_t operand, bool transposed, unsigned i, unsigned k) {
	if (operand >> 62 != 1) bad_operand("a product's operand is not swizzled by 128 bytes");
	unsigned next = (operand >> 16 & 0x3fff) << 4, stride = (operand >> 32 & 0x3fff) << 4;
	unsigned at = (operand & 0x3fff) << 4;
	at += transposed ? i / 64 * next + i % 64 * 2 + k / 8 * stride + k % 8 * 128 : i / 8 * stride + i % 8 * 128 + 2 * k;
	at ^= (at >> 7 & 7) << 4;
	unsigned base = static_cast<unsigned>(reinterpret_cast<uintptr_t>(dynamic_shared) & 0x3ffff);
	__nv_bfloat16 x;
	memcpy(static_cast<void *>(&x), dynamic_shared + ((at - base) & 0x3ffff), sizeof x);
	return __bfloat162float(x);
}

inline void make(Product &p) {
	int g = lane() / 4, t = lane() % 4, first = threadIdx.x % 128 / 32 * 16;
	if (!p.in_registers)
		for (int half = 0; half < 2; half++)
			for (int k = 0; k < 16; k++) p.rows[half][k] = element(p.a, p.a_transposed, first + g + 8 * half, k);
	for (int j = 0; j < p.n / 4; j++) {
		int column = j / 2 * 8 + 2 * t + j % 2;
		float *upper = p.d + j / 2 * 4 + j % 2, *lower = upper + 2;
		float sum[2] = {p.add ? *upper : 0, p.add ? *lower : 0};
		for (int k = 0; k < 16; k++) {
			float x = element(p.b, p.b_transposed, column, k);
			sum[0] += p.rows[0][k] * x;
			sum[1] += p.rows[1][k] * x;
		}
		*upper = sum[0];
		*lower = sum[1];
	}
}

inline void begin(Product p) {
	p.group = my_products().group;
	if (threadIdx.x / 32 % 2 == 0)
		make(p);
	else
		my_products().waiting.push_back(p);
}

} // namespace emulate

inline uint32_t shared_address(const void *p) { return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p)); }

inline void barrier_open(uint64_t *barrier, int arrivals) {
	uint16_t n = static_cast<uint16_t>(arrivals);
	*reinterpret_cast<emulate::Barrier *>(barrier) = {n, n, 0, emulate::OPENED};
	emulate::due(barrier) = 0;
}
inline void barriers_opened() {}
inline void barrier_arrive(uint64_t *barrier) {
	emulate::barrier_at(barrier)->missing--;
	emulate::turn(emulate::barrier_at(barrier));
}
inline void barrier_expect(uint64_t *barrier, int bytes) {
	emulate::due(barrier) += bytes;
	barrier_arrive(barrier);
}
inline void barrier_wait(uint64_t *barrier, int parity) {
	emulate::barrier_at(barrier);
	emulate::wait_until(emulate::phase_is_over, barrier, static_cast<unsigned>(parity));
}

inline void copy_box(void *to, const tensor_map &map, int channel, int row, uint64_t *barrier) {
	static unsigned count;
	if (reinterpret_cast<uintptr_t>(to) % 1024) emulate::bad_operand("a panel does not begin at a multiple of 1024");
	emulate::Box box = {static_cast<unsigned char *>(to), map, channel, row, emulate::barrier_at(barrier)};
	if (count++ % 2)
		emulate::boxes.push_back(box);
	else
		emulate::deliver(box);
}

/* Arrives where threads meet by a number. Returns how often they had met before. */
inline unsigned threads_pass(int number, int threads) {
	emulate::Meeting &m = emulate::meetings[number];
	unsigned times = m.times;
	if (++m.arrived == static_cast<unsigned>(threads)) {
		m.arrived = 0;
		m.times++;
	}
	return times;
}
inline void threads_meet(int number, int threads) {
	unsigned times = threads_pass(number, threads);
	emulate::wait_until(emulate::has_met, &emulate::meetings[number], times);
}

inline void publish_shared() {}
template <int REGISTERS> inline void take_registers() {}
template <int REGISTERS> inline void give_registers() {}

/* Blocks run one after another here: what has not been counted never will be. */
inline void wait_for_count(const int *counter, int count) {
	if (*counter != count) emulate::bad_operand("a block waits for one that has not begun");
}
inline void count_one(int *counter) { ++*counter; }

inline void send_floats(float4 *to, const float4 *from, int count, bool add) {
	emulate::Sent s = {threadIdx.x, to, from, count, add, {}};
	if (emulate::sends++ % 2) {
		emulate::sent.push_back(s);
	} else {
		emulate::read(s);
		emulate::write(s);
	}
}
inline void floats_read() {
	emulate::give_way();
	for (emulate::Sent &s : emulate::sent)
		if (s.thread == threadIdx.x) emulate::read(s);
}
inline void floats_written() {
	emulate::give_way();
	std::vector<emulate::Sent> others;
	for (emulate::Sent &s : emulate::sent) {
		if (s.thread != threadIdx.x) {
			others.push_back(s);
			continue;
		}
		emulate::read(s);
		emulate::write(s);
	}
	emulate::sent = others;
}

inline void products_begin() { __syncwarp(); }
inline void products_commit() { emulate::my_products().group++; }
template <int PENDING> inline void products_wait() {
	emulate::Products &q = emulate::my_products();
	size_t done = 0;
	while (done < q.waiting.size() && q.waiting[done].group + PENDING < q.group) emulate::make(q.waiting[done++]);
	q.waiting.erase(q.waiting.begin(), q.waiting.begin() + done);
	__syncwarp();
}
template <typename T, int N> inline void pin_registers(T (&)[N][4]) {}

inline uint64_t matrix_of(const void *panel, int next) {
	return uint64_t{1} << 62 | uint64_t{1024 / 16} << 32 | static_cast<uint64_t>(next / 16) << 16 |
		(shared_address(panel) & 0x3ffff) >> 4;
}

template <int N, int A_TRANSPOSED, int B_TRANSPOSED>
inline void multiply(float (&d)[N / 8][4], uint64_t a, uint64_t b, bool add) {
	emulate::begin({d[0], N, A_TRANSPOSED, B_TRANSPOSED, add, false, {}, a, b, 0});
}
template <int N, int B_TRANSPOSED>
inline void multiply(float (&d)[N / 8][4], const uint32_t (&a)[4], uint64_t b, bool add) {
	emulate::Fragments mine = {};
	emulate::unpack(mine.upper, a[0]);
	emulate::unpack(mine.lower, a[1]);
	emulate::unpack(mine.upper + 2, a[2]);
	emulate::unpack(mine.lower + 2, a[3]);
	const emulate::Fragments *all = emulate::gather(0xffffffff, mine);
	emulate::Product p = {d[0], N, 0, B_TRANSPOSED, add, true, {}, 0, b, 0};
	for (int k = 0; k < 16; k++) {
		const emulate::Fragments &of = all[emulate::lane() / 4 * 4 + k % 8 / 2];
		p.rows[0][k] = of.upper[k / 8 * 2 + k % 2];
		p.rows[1][k] = of.lower[k / 8 * 2 + k % 2];
	}
	emulate::begin(p);
}

#endif
