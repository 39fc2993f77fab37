/* Attention within buckets, by attention_plain.cuh's tiles of rows and columns in the
 * order of the buckets; tiles that no row sees are left out. For what attention_bucket.cu
 * does not do on tensor cores. */
#include "attention_plain.cuh"
#include "attention_sorted.cuh"

namespace {

static_assert(ROWS == SORTED_ROWS, "a block has the rows whose ranges it knows");

/* Grid as plain_grid. */
template <typename E, int SLICES>
__global__ void __launch_bounds__(THREADS, SLICES == 1 ? 2 : 1)
	sparse_forward(E *out, float *lse, const E *qkv, attention_buckets by, attention_shape s, bool vector) {
	SHARED(stage, shared, );
	SHARED(row_reach, seen, );
	attention_head head(s, blockIdx.x);
	s.t = head.t;
	int row = blockIdx.y * ROWS, channel = blockIdx.z * SLICES * WIDTH;
	if (row >= s.t) return;
	sorted_side queries = side_of(by, s, head, blockIdx.x, 0), keys = side_of(by, s, head, blockIdx.x, 1);
	sorted_rows<const E> q = sorted(part_of(qkv, s, head, 0), queries), k = sorted(part_of(qkv, s, head, 1), keys);
	sorted_rows<const E> v = sorted(part_of(qkv, s, head, 2), keys);
	int rows = min(ROWS, s.t - row);
	reach_all<false>(seen, queries, keys, by.count, row, s.t);
	float o[SLICES][SIDE][2], largest[SIDE], sum[SIDE];
	clear<SLICES>(o);
#pragma unroll
	for (int i = 0; i < SIDE; i++) {
		largest[i] = -INFINITY;
		sum[i] = 0;
	}
	int end = seen[rows - 1].hi;
	for (int column = seen[0].lo; column < end; column += ROWS) {
		column = next_seen(seen, rows, column);
		score_block p;
		multiply(p, shared, q, row, k, column, s, vector);
#pragma unroll
		for (int i = 0; i < SIDE; i++) {
			int at = my_row() + 16 * i;
			reach r = at < rows ? seen[at] : reach{0, 0};
			auto seen_of = [&](int c) { return sees(r, column + c); };
			float shrink = softmax(p[i], largest[i], sum[i], seen_of, s.scale * LOG2_E);
#pragma unroll
			for (int n = 0; n < SLICES; n++)
#pragma unroll
				for (int j = 0; j < 2; j++) o[n][i][j] *= shrink;
		}
		accumulate<SLICES>(o, shared, p, v, column, channel, s, vector);
	}
	float inverse[SIDE];
#pragma unroll
	for (int i = 0; i < SIDE; i++) {
		float total = row_sum(sum[i]);
		int at = my_row() + 16 * i;
		inverse[i] = total == 0 ? 0 : 1 / total;
		if (channel == 0 && my_column() == 0 && at < rows)
			lse[head.sums(s) + queries.order[row + at]] = total == 0 ? -INFINITY : fmaf(largest[i], LN_2, logf(total));
	}
	store<SLICES>(sorted(rows_of(out, s, head), queries), o, inverse, row, channel, s);
}

/* Turns scores and y·wᵀ of a tile into p and ds. stats are the head's. */
template <bool KEYS>
__device__ __forceinline__ void probabilities(score_block &p, score_block &ds, const query_stats *stats,
	sorted_side queries, const row_reach &all, int row, int rows, int column, attention_shape s) {
#pragma unroll
	for (int i = 0; i < SIDE; i++)
#pragma unroll
		for (int j = 0; j < SIDE; j++) {
			int r = my_row() + 16 * i, c = column + my_column() + 16 * j;
			bool seen = r < rows && sees(all[r], c);
			query_stats of = seen ? stats[queries.order[KEYS ? c : row + r]] : query_stats{0, 0};
			p[i][j] = seen ? exp2_flush(fmaf(p[i][j], s.scale * LOG2_E, -of.lse2)) : 0;
			ds[i][j] = p[i][j] * (ds[i][j] - of.mean);
			if (!seen) ds[i][j] = 0;
		}
}

/* Grid as plain_grid. */
template <typename E, int SLICES, bool KEYS>
__global__ void __launch_bounds__(THREADS, SLICES == 1 ? 2 : 1) sparse_backward(E *dqkv, const E *dout, const E *qkv,
	const query_stats *stats, attention_buckets by, attention_shape s, bool vector) {
	SHARED(stage, shared, );
	SHARED(row_reach, seen, );
	attention_head head(s, blockIdx.x);
	s.t = head.t;
	int row = blockIdx.y * ROWS, channel = blockIdx.z * SLICES * WIDTH;
	if (row >= s.t) return;
	sorted_side queries = side_of(by, s, head, blockIdx.x, 0), keys = side_of(by, s, head, blockIdx.x, 1);
	sorted_side own = KEYS ? keys : queries, others = KEYS ? queries : keys;
	sorted_rows<const E> q = sorted(part_of(qkv, s, head, 0), queries), k = sorted(part_of(qkv, s, head, 1), keys);
	sorted_rows<const E> v = sorted(part_of(qkv, s, head, 2), keys), dy = sorted(rows_of(dout, s, head), queries);
	sorted_rows<const E> u = KEYS ? q : k, w = KEYS ? dy : v;
	int rows = min(ROWS, s.t - row);
	reach_all<KEYS>(seen, own, others, by.count, row, s.t);
	float du[SLICES][SIDE][2], dw[KEYS ? SLICES : 1][SIDE][2];
	clear<SLICES>(du);
	clear<KEYS ? SLICES : 1>(dw);
	int end = seen[rows - 1].hi;
	for (int column = seen[0].lo; column < end; column += ROWS) {
		column = next_seen(seen, rows, column);
		score_block p, ds;
		multiply(p, shared, KEYS ? k : q, row, u, column, s, vector);
		multiply(ds, shared, KEYS ? v : dy, row, w, column, s, vector);
		probabilities<KEYS>(p, ds, stats + head.sums(s), queries, seen, row, rows, column, s);
		accumulate<SLICES>(du, shared, ds, u, column, channel, s, vector);
		if constexpr (KEYS) accumulate<SLICES>(dw, shared, p, w, column, channel, s, vector);
	}
	head = attention_head(s, block_again()); /* computed again: keeping it in the loop would cost registers */
	own = side_of(by, s, head, block_again(), KEYS);
	store<SLICES>(sorted(part_of(dqkv, s, head, KEYS), own), du, {s.scale, s.scale, s.scale, s.scale}, row, channel, s);
	if constexpr (KEYS) store<SLICES>(sorted(part_of(dqkv, s, head, 2), own), dw, {1, 1, 1, 1}, row, channel, s);
}

bool has_tiles(attention_shape s) { return s.hs == 32 || s.hs == 64 || s.hs == 128; }

template <typename E>
int32_t forward(void *stream, void *out, float *lse, const void *qkv, attention_buckets by, attention_shape s) {
	bool vector = s.hs % 8 == 0 && attention_aligned(qkv);
	E *y = static_cast<E *>(out);
	const E *x = static_cast<const E *>(qkv);
	if constexpr (sizeof(E) == sizeof(bf16)) {
		if (has_tiles(s) && vector && attention_aligned(out)) return attention_buckets_forward(stream, y, lse, x, by, s);
	}
	if (s.hs <= WIDTH)
		LAUNCH((sparse_forward<E, 1>), plain_grid(s, 1), THREADS, 0, stream, y, lse, x, by, s, vector);
	else
		LAUNCH((sparse_forward<E, 4>), plain_grid(s, 4), THREADS, 0, stream, y, lse, x, by, s, vector);
	return launched();
}

template <typename E, int SLICES>
int32_t both(void *stream, E *dqkv, const E *dout, const E *qkv, const query_stats *stats, attention_buckets by,
	attention_shape s, bool vector) {
	dim3 grid = plain_grid(s, SLICES);
	LAUNCH((sparse_backward<E, SLICES, false>), grid, THREADS, 0, stream, dqkv, dout, qkv, stats, by, s, vector);
	int32_t status = launched();
	if (status != 0) return status;
	LAUNCH((sparse_backward<E, SLICES, true>), grid, THREADS, 0, stream, dqkv, dout, qkv, stats, by, s, vector);
	return launched();
}

template <typename E>
int32_t backward(void *stream, void *dqkv, const void *dout, const void *qkv, const void *out, const float *lse,
	query_stats *stats, attention_buckets by, attention_shape s) {
	const E *dy = static_cast<const E *>(dout), *x = static_cast<const E *>(qkv), *y = static_cast<const E *>(out);
	E *dx = static_cast<E *>(dqkv);
	bool vector = s.hs % 8 == 0 && attention_aligned(dout) && attention_aligned(qkv) && attention_aligned(out);
	int32_t status = attention_stats_of(stream, stats, dy, y, lse, s, vector);
	if (status != 0) return status;
	if constexpr (sizeof(E) == sizeof(bf16)) {
		if (has_tiles(s) && vector && attention_aligned(dx)) return attention_buckets_backward(stream, dx, dy, x, stats, by, s);
	}
	if (s.hs <= WIDTH) return both<E, 1>(stream, dx, dy, x, stats, by, s, vector);
	return both<E, 4>(stream, dx, dy, x, stats, by, s, vector);
}

} // namespace

extern "C" int32_t dynmo_cuda_sparse_attention_forward(dynmo_cuda *k, void *stream, void *out, float *lse,
	const void *qkv, const int32_t *offsets, const int32_t *order, const int32_t *starts, int32_t buckets, int32_t b,
	int32_t longest, int32_t n, int32_t c, int32_t nh) {
	if (n == 0 || c == 0) return 0;
	return BY_TYPE(k, forward, stream, out, lse, qkv, attention_buckets{order, starts, buckets},
		attention_shape_of(offsets, b, longest, c, nh, nh));
}

extern "C" int32_t dynmo_cuda_sparse_attention_backward(dynmo_cuda *k, void *stream, void *dqkv, const void *dout,
	const void *qkv, const void *out, const float *lse, const int32_t *offsets, const int32_t *order,
	const int32_t *starts, int32_t buckets, int32_t b, int32_t longest, int32_t n, int32_t c, int32_t nh) {
	if (n == 0 || c == 0) return 0;
	void *stats;
	int32_t status = workspace(k, static_cast<size_t>(n) * nh * sizeof(query_stats), &stats);
	if (status != 0) return status;
	return BY_TYPE(k, backward, stream, dqkv, dout, qkv, out, lse, static_cast<query_stats *>(stats),
		attention_buckets{order, starts, buckets}, attention_shape_of(offsets, b, longest, c, nh, nh));
}
