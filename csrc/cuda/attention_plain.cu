/* Attention by attention_plain.cuh's tiles, in float, without tensor cores: causal, or within
 * buckets where attention_bucket.cu does not do it. As in attention_backward.cu a block owns
 * 64 rows of a head; forward rows are queries. Tiles that no row sees are left out. */
#include "attention_plain.cuh"
#include "attention_sorted.cuh"

namespace {

static_assert(ROWS == SORTED_ROWS, "a block has the rows whose ranges it knows");

/* Stands for attention_buckets where heads stay in the order of the sequence. */
struct causal {
	static constexpr int count = 0;
};

/* Queries or keys of one head in the order of the sequence. */
struct sequence_side {
	int t;
	__device__ __forceinline__ int place(int i) const { return i; }
};

__device__ __forceinline__ sequence_side side_of(causal, attention_shape, attention_head h, int, int) { return {h.t}; }

template <typename E> __device__ __forceinline__ head_rows<E> sorted(head_rows<E> m, sequence_side) { return m; }

template <bool KEYS> __device__ __forceinline__ reach reach_of(sequence_side rows, sequence_side, int, int i) {
	return KEYS ? reach{i, rows.t} : reach{0, i + 1};
}

/* The last blocks of queries in the order of the sequence have most to do, and come first. */
template <bool SORTED, bool KEYS> __device__ __forceinline__ int first_row() {
	return (SORTED || KEYS ? blockIdx.y : gridDim.y - 1 - blockIdx.y) * ROWS;
}

template <typename ORDER> constexpr bool is_sorted = !std::is_same<ORDER, causal>::value;

/* Grid (b·nh, tiles of queries, parts of the head). */
template <typename E, int SLICES, typename ORDER>
__global__ void __launch_bounds__(THREADS, SLICES == 1 ? 2 : 1)
	plain_forward(E *out, float *lse, const E *qkv, ORDER by, attention_shape s, bool vector) {
	constexpr bool SORTED = is_sorted<ORDER>;
	SHARED(stage, shared, );
	SHARED(row_reach, seen, );
	attention_head head(s, blockIdx.x);
	s.t = head.t;
	int row = first_row<SORTED, false>(), channel = blockIdx.z * SLICES * WIDTH;
	if (row >= s.t) return;
	auto queries = side_of(by, s, head, blockIdx.x, 0), keys = side_of(by, s, head, blockIdx.x, 1);
	auto q = sorted(part_of(qkv, s, head, 0), queries), k = sorted(part_of(qkv, s, head, 1), keys);
	auto v = sorted(part_of(qkv, s, head, 2), keys);
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
		if (SORTED) column = next_seen(seen, rows, column);
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
			lse[head.sums(s) + queries.place(row + at)] = total == 0 ? -INFINITY : largest[i] * LN_2 + logf(total);
	}
	store<SLICES>(sorted(rows_of(out, s, head), queries), o, inverse, row, channel, s);
}

/* Turns scores and y·wᵀ of a tile into p and ds, as in attention_backward.cu. stats are the
 * head's. */
template <bool KEYS, typename QUERIES>
__device__ __forceinline__ void probabilities(score_block &p, score_block &ds, const query_stats *stats,
	QUERIES queries, const row_reach &all, int row, int rows, int column, attention_shape s) {
#pragma unroll
	for (int i = 0; i < SIDE; i++) {
		int at = my_row() + 16 * i;
		reach r = at < rows ? all[at] : reach{0, 0};
#pragma unroll
		for (int j = 0; j < SIDE; j++) {
			int c = column + my_column() + 16 * j;
			bool seen = sees(r, c);
			query_stats of = seen ? stats[queries.place(KEYS ? c : row + at)] : query_stats{0, 0};
			p[i][j] = seen ? exp2_flush(fmaf(p[i][j], s.scale * LOG2_E, -of.lse2)) : 0;
			ds[i][j] = seen ? p[i][j] * (ds[i][j] - of.mean) : 0;
		}
	}
}

/* Grid (b·nh or, by keys, b·nh/share, tiles of rows, parts of the head). By keys a block goes
 * over the queries of all heads that share them, one head after the other: none do in buckets. */
template <typename E, int SLICES, bool KEYS, typename ORDER>
__global__ void __launch_bounds__(THREADS, SLICES == 1 || !(KEYS || is_sorted<ORDER>) ? 2 : 1) plain_backward(E *dqkv,
	const E *dout, const E *qkv, const query_stats *stats, ORDER by, attention_shape s, bool vector) {
	constexpr bool SORTED = is_sorted<ORDER>;
	SHARED(stage, shared, );
	SHARED(row_reach, seen, );
	int heads = KEYS && !SORTED ? s.share : 1;
	attention_head head(s, blockIdx.x * heads);
	s.t = head.t;
	int row = first_row<SORTED, KEYS>(), channel = blockIdx.z * SLICES * WIDTH;
	if (row >= s.t) return;
	auto queries = side_of(by, s, head, blockIdx.x, 0), keys = side_of(by, s, head, blockIdx.x, 1);
	auto own = KEYS ? keys : queries, others = KEYS ? queries : keys;
	auto q = sorted(part_of(qkv, s, head, 0), queries), k = sorted(part_of(qkv, s, head, 1), keys);
	auto v = sorted(part_of(qkv, s, head, 2), keys), dy = sorted(rows_of(dout, s, head), queries);
	auto u = KEYS ? q : k, w = KEYS ? dy : v;
	int rows = min(ROWS, s.t - row);
	reach_all<KEYS>(seen, own, others, by.count, row, s.t);
	stats += head.sums(s);
	float du[SLICES][SIDE][2], dw[KEYS ? SLICES : 1][SIDE][2];
	clear<SLICES>(du);
	clear<KEYS ? SLICES : 1>(dw);
	for (int left = heads; left > 0; left--) {
		int end = seen[rows - 1].hi;
		for (int column = seen[0].lo; column < end; column += ROWS) {
			if (SORTED) column = next_seen(seen, rows, column);
			score_block p, ds;
			multiply(p, shared, KEYS ? k : q, row, u, column, s, vector);
			multiply(ds, shared, KEYS ? v : dy, row, w, column, s, vector);
			probabilities<KEYS>(p, ds, stats, queries, seen, row, rows, column, s);
			accumulate<SLICES>(du, shared, ds, u, column, channel, s, vector);
			if constexpr (KEYS) accumulate<SLICES>(dw, shared, p, w, column, channel, s, vector);
		}
		u.first += s.hs;
		w.first += s.hs;
		stats += s.t;
	}
	head = attention_head(s, block_again() * heads); /* anew, as registers are scarce in the loop */
	own = side_of(by, s, head, block_again(), KEYS);
	store<SLICES>(sorted(part_of(dqkv, s, head, KEYS), own), du, {s.scale, s.scale, s.scale, s.scale}, row, channel, s);
	if constexpr (KEYS) store<SLICES>(sorted(part_of(dqkv, s, head, 2), own), dw, {1, 1, 1, 1}, row, channel, s);
}

/* A block makes a head of 32 whole, or 128 channels of a larger one. */
template <typename E, typename ORDER>
int32_t run_forward(void *stream, E *out, float *lse, const E *qkv, ORDER by, attention_shape s, bool vector) {
	if (s.hs <= WIDTH)
		LAUNCH((plain_forward<E, 1, ORDER>), plain_grid(s, 1), THREADS, 0, stream, out, lse, qkv, by, s, vector);
	else
		LAUNCH((plain_forward<E, 4, ORDER>), plain_grid(s, 4), THREADS, 0, stream, out, lse, qkv, by, s, vector);
	return launched();
}

template <typename E, int SLICES, typename ORDER>
int32_t both(void *stream, E *dqkv, const E *dout, const E *qkv, const query_stats *stats, ORDER by, attention_shape s,
	bool vector) {
	dim3 grid = plain_grid(s, SLICES);
	LAUNCH((plain_backward<E, SLICES, false, ORDER>), grid, THREADS, 0, stream, dqkv, dout, qkv, stats, by, s, vector);
	int32_t status = launched();
	if (status != 0) return status;
	grid.x /= s.share;
	LAUNCH((plain_backward<E, SLICES, true, ORDER>), grid, THREADS, 0, stream, dqkv, dout, qkv, stats, by, s, vector);
	return launched();
}

template <typename E, typename ORDER>
int32_t run_backward(void *stream, E *dqkv, const E *dout, const E *qkv, const query_stats *stats, ORDER by,
	attention_shape s, bool vector) {
	if (s.hs <= WIDTH) return both<E, 1>(stream, dqkv, dout, qkv, stats, by, s, vector);
	return both<E, 4>(stream, dqkv, dout, qkv, stats, by, s, vector);
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
	return run_forward(stream, y, lse, x, by, s, vector);
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
	return run_backward(stream, dx, dy, x, stats, by, s, vector);
}

} // namespace

template <typename E>
int32_t attention_plain_forward(void *stream, E *out, float *lse, const E *qkv, attention_shape s, bool vector) {
	return run_forward(stream, out, lse, qkv, causal{}, s, vector);
}

template <typename E>
int32_t attention_plain_backward(void *stream, E *dqkv, const E *dout, const E *qkv, const query_stats *stats,
	attention_shape s, bool vector) {
	return run_backward(stream, dqkv, dout, qkv, stats, causal{}, s, vector);
}

template int32_t attention_plain_forward(void *, float *, float *, const float *, attention_shape, bool);
template int32_t attention_plain_forward(void *, bf16 *, float *, const bf16 *, attention_shape, bool);
template int32_t attention_plain_backward(void *, float *, const float *, const float *, const query_stats *,
	attention_shape, bool);
template int32_t attention_plain_backward(void *, bf16 *, const bf16 *, const bf16 *, const query_stats *,
	attention_shape, bool);

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
