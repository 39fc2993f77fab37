/* The functions of csrc/cuda/mma.cuh on the host, where their meaning stands.
 * Lanes learn of each other by device.h's gather. */
#ifndef DYNMO_EMULATE_MMA_H
#define DYNMO_EMULATE_MMA_H

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "device.h"

namespace emulate {

/* A lane's operands of a product: of row g of A, of row g+8 and of column g of B
 * each the elements k = 2t, 2t+1, 2t+8, 2t+9. */
struct Fragments {
	float upper[4], lower[4], column[4];
};

inline void unpack(float *to, uint32_t packed) {
	__nv_bfloat16 pair[2];
	memcpy(static_cast<void *>(pair), &packed, sizeof pair);
	to[0] = __bfloat162float(pair[0]);
	to[1] = __bfloat162float(pair[1]);
}

inline uint32_t pack(__nv_bfloat16 low, __nv_bfloat16 high) {
	__nv_bfloat16 pair[2] = {low, high};
	uint32_t packed;
	memcpy(&packed, pair, sizeof packed);
	return packed;
}

inline float dot4(const float *x, const float *y, float sum) {
	for (int i = 0; i < 4; i++) sum += x[i] * y[i];
	return sum;
}

/* A GPU ends a kernel that has such an address. */
inline void demand_alignment(const void *p, size_t bytes) {
	if (reinterpret_cast<uintptr_t>(p) % bytes == 0) return;
	fprintf(stderr, "emulator: %p of a cp.async or ldmatrix is not a multiple of %zu\n", p, bytes);
	abort();
}

/* An asynchronous copy that has not been made, of a thread's open group. */
struct Copy {
	void *to;
	const void *from; /* null: zeros */
	size_t bytes;
	unsigned group;
};

struct Copies {
	std::vector<Copy> waiting;
	unsigned group = 0; /* the open one */
	uint64_t block = 0; /* that they are of */
};
inline Copies queues[1024]; /* by thread */
inline Copies &my_copies() {
	Copies &q = queues[threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)];
	if (q.block != block_number) {
		q.waiting.clear(); /* of a block that ended by a fault */
		q.group = 0;
		q.block = block_number;
	}
	return q;
}

/* Has block.cpp look, in a library whose kernels copy so. */
inline const bool looks = (copies_left = [] {
	for (unsigned i = 0; i < blockDim.x * blockDim.y * blockDim.z; i++)
		if (queues[i].block == block_number && !queues[i].waiting.empty()) return true;
	return false;
}, true);

inline void make(const Copy &c) {
	if (c.from)
		memcpy(c.to, c.from, c.bytes);
	else
		memset(c.to, 0, c.bytes);
}

/* Hardware may copy at any moment up to the wait. Here even lanes copy at once, and
 * odd lanes at the wait. A missing wait, or a buffer that is overwritten while it is
 * still read, then changes results. */
inline void copy_later(void *to, const void *from, bool inside, size_t bytes) {
	demand_alignment(to, bytes);
	demand_alignment(from, bytes);
	Copies &q = my_copies();
	Copy c = {to, inside ? from : nullptr, bytes, q.group};
	if (lane() % 2 == 0)
		make(c);
	else
		q.waiting.push_back(c);
}

inline void copies_wait(unsigned groups) {
	Copies &q = my_copies();
	size_t done = 0;
	while (done < q.waiting.size() && q.waiting[done].group + groups < q.group) make(q.waiting[done++]);
	q.waiting.erase(q.waiting.begin(), q.waiting.begin() + done);
}

} // namespace emulate

inline int thread_again() { return static_cast<int>(threadIdx.x); }
inline int block_again() { return static_cast<int>(blockIdx.x); }

inline void mma_bf16_16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
	emulate::Fragments mine;
	emulate::unpack(mine.upper, a[0]);
	emulate::unpack(mine.lower, a[1]);
	emulate::unpack(mine.upper + 2, a[2]);
	emulate::unpack(mine.lower + 2, a[3]);
	emulate::unpack(mine.column, b0);
	emulate::unpack(mine.column + 2, b1);
	const emulate::Fragments *all = emulate::gather(0xffffffff, mine);
	int g = emulate::lane() / 4, t = emulate::lane() % 4;
	for (int i = 0; i < 4; i++) { /* lanes that share k */
		const emulate::Fragments &rows = all[4 * g + i];
		const float *left = all[4 * (2 * t) + i].column, *right = all[4 * (2 * t + 1) + i].column;
		d[0] = emulate::dot4(rows.upper, left, d[0]);
		d[1] = emulate::dot4(rows.upper, right, d[1]);
		d[2] = emulate::dot4(rows.lower, left, d[2]);
		d[3] = emulate::dot4(rows.lower, right, d[3]);
	}
}

inline void ldmatrix_x4(uint32_t (&r)[4], const __nv_bfloat16 *row) {
	emulate::demand_alignment(row, 16);
	const __nv_bfloat16 *const *rows = emulate::gather(0xffffffff, row);
	int g = emulate::lane() / 4, t = emulate::lane() % 4;
	for (int i = 0; i < 4; i++) r[i] = emulate::pack(rows[8 * i + g][2 * t], rows[8 * i + g][2 * t + 1]);
}

inline void ldmatrix_x4_trans(uint32_t (&r)[4], const __nv_bfloat16 *row) {
	emulate::demand_alignment(row, 16);
	const __nv_bfloat16 *const *rows = emulate::gather(0xffffffff, row);
	int g = emulate::lane() / 4, t = emulate::lane() % 4;
	for (int i = 0; i < 4; i++) r[i] = emulate::pack(rows[8 * i + 2 * t][g], rows[8 * i + 2 * t + 1][g]);
}

inline void cp_async_4(void *to, const void *from, bool inside) { emulate::copy_later(to, from, inside, 4); }
inline void cp_async_16(void *to, const void *from, bool inside) { emulate::copy_later(to, from, inside, 16); }
inline void cp_async_8(void *to, const void *from, bool inside) { emulate::copy_later(to, from, inside, 8); }
inline void cp_async_commit() { emulate::my_copies().group++; }
template <int GROUPS> inline void cp_async_wait() { emulate::copies_wait(GROUPS); }

inline uint32_t pack_bf16(float low, float high) {
	return emulate::pack(__float2bfloat16_rn(low), __float2bfloat16_rn(high));
}

inline float exp2_flush(float x) {
	float y = exp2f(x);
	return y < 0x1p-126f ? 0 : y; /* NaN stays */
}

#endif
