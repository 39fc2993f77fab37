/* Rows of a head in the order of its buckets, and which columns each sees: a query the
 * first keys of its bucket, a key the last queries. Ranges ascend with the rows, so the
 * columns of a block of rows are those from its first row's begin to its last row's end. */
#ifndef DYNMO_ATTENTION_SORTED_CUH
#define DYNMO_ATTENTION_SORTED_CUH

#include "attention.cuh"

constexpr int SORTED_ROWS = 64; /* of a block */

/* The rows of a head in the order of its buckets. */
template <typename E> struct sorted_rows {
	using element = E;
	E *first;
	size_t stride;
	const int32_t *order;
	__device__ __forceinline__ E *row(int i) const { return first + order[i] * stride; }
};

/* Queries or keys of one head. */
struct sorted_side {
	const int32_t *order, *starts; /* buckets + 1 */
};

template <typename E>
__device__ __forceinline__ sorted_rows<E> sorted(head_rows<E> m, sorted_side by) {
	return {m.first, m.stride, by.order};
}

/* Side 0, the queries, or 1, the keys, of head i of all sequences. */
__device__ __forceinline__ sorted_side side_of(attention_buckets by, attention_shape s, attention_head h, int i, int side) {
	return {by.order + 2 * h.sums(s) + static_cast<size_t>(side) * h.t,
		by.starts + (2 * static_cast<size_t>(i) + side) * (by.count + 1)};
}

/* The columns [lo, hi) that a row sees. */
struct reach {
	int lo, hi;
};
typedef reach row_reach[SORTED_ROWS];

/* The first of the ascending x[lo..hi) that is at least least, hi if none is. */
__device__ __forceinline__ int lower_bound(const int32_t *x, int lo, int hi, int least) {
	while (lo < hi) {
		int middle = (lo + hi) / 2;
		if (x[middle] < least)
			lo = middle + 1;
		else
			hi = middle;
	}
	return lo;
}

/* The columns of the other side that row i of a side sees: a query keys, or, where KEYS is set, a key
 * queries. */
template <bool KEYS>
__device__ __forceinline__ reach reach_of(sorted_side rows, sorted_side columns, int buckets, int i) {
	int bucket = lower_bound(rows.starts, 0, buckets + 1, i + 1) - 1;
	int lo = columns.starts[bucket], hi = columns.starts[bucket + 1], position = rows.order[i];
	if (KEYS) return {lower_bound(columns.order, lo, hi, position), hi};
	return {lo, lower_bound(columns.order, lo, hi, position + 1)};
}

/* Sets what rows [row, row + 64) see. */
template <bool KEYS>
__device__ __forceinline__ void reach_all(row_reach &all, sorted_side rows, sorted_side columns, int buckets, int row,
	int t) {
	if (threadIdx.x < SORTED_ROWS && row + static_cast<int>(threadIdx.x) < t)
		all[threadIdx.x] = reach_of<KEYS>(rows, columns, buckets, row + threadIdx.x);
	__syncthreads();
}

/* Returns the first column, from column on, that any of `rows` rows may see. All threads agree. */
__device__ __forceinline__ int next_seen(const row_reach &all, int rows, int column) {
	int lo = 0, hi = rows - 1; /* the last row's end is behind column */
	while (lo < hi) {
		int middle = (lo + hi) / 2;
		if (all[middle].hi <= column)
			lo = middle + 1;
		else
			hi = middle;
	}
	return max(column, all[lo].lo);
}

__device__ __forceinline__ bool sees(reach r, int column) { return r.lo <= column && column < r.hi; }

/* On tensor cores: bfloat16, head sizes 32, 64 and 128, operands aligned to 16 bytes. */
int32_t attention_buckets_forward(void *stream, bf16 *out, float *lse, const bf16 *qkv, attention_buckets by,
	attention_shape s);
int32_t attention_buckets_backward(void *stream, bf16 *dqkv, const bf16 *dout, const bf16 *qkv, const query_stats *stats,
	attention_buckets by, attention_shape s);

#endif
