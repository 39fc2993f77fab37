/* Attention within buckets backward on tensor cores: attention_backward.cu's two passes, by
 * queries and by keys, over the tiles of columns that a row of the block sees. The block's
 * own rows stay in shared memory, beside the tiles. */
#include "attention_bucket.cuh"

namespace {

/* The shared memory of a block. */
template <int HS> struct gradient_tiles {
	bf16 x[TILE_SIZE<HS>], y[TILE_SIZE<HS>]; /* own rows */
	bf16 u[TILE_SIZE<HS>], w[TILE_SIZE<HS>]; /* of columns */
	query_stats stats[TILE_ROWS];            /* by keys: of the columns */
};

typedef float chunk_scores[2][4]; /* 16 rows x 16 columns */

/* out = own·tileᵀ for 16 columns. */
template <int HS>
__device__ __forceinline__ void multiply(chunk_scores &out, const bf16 *own, const bf16 *tile, int column) {
	int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
#pragma unroll
	for (int k = 0; k < HS / 16; k++) {
		uint32_t a[4], b[4];
		ldmatrix_x4(a, own + (row + lane % 16) * TILE_STRIDE<HS> + 16 * k + lane / 16 * 8);
		load_b_rows<HS>(b, tile, column, 16 * k);
		mma_bf16_16816(out[0], a, b[0], b[1]);
		mma_bf16_16816(out[1], a, b[2], b[3]);
	}
}

/* sum += p·tile, of 16 rows of it. */
template <int HS>
__device__ __forceinline__ void accumulate(float (&sum)[HS / 8][4], const chunk_scores &p, const bf16 *tile, int row) {
	uint32_t a[4];
	pack_a(a, p[0], p[1]);
#pragma unroll
	for (int n = 0; n < HS / 16; n++) {
		uint32_t b[4];
		load_b_channels<HS>(b, tile, row, 16 * n);
		mma_bf16_16816(sum[2 * n], a, b[0], b[1]);
		mma_bf16_16816(sum[2 * n + 1], a, b[2], b[3]);
	}
}

/* Turns scores and y·wᵀ into p and ds. column is the fragment's first. */
template <bool KEYS>
__device__ __forceinline__ void probabilities(chunk_scores &p, chunk_scores &ds, const query_stats (&by_row)[2],
	const query_stats *by_column, const warp_reach &seen, int column, float scale2) {
	int c = threadIdx.x % 4 * 2;
#pragma unroll
	for (int n = 0; n < 2; n++)
#pragma unroll
		for (int i = 0; i < 4; i++) {
			int at = 8 * n + c + i % 2;
			query_stats stats = KEYS ? by_column[at] : by_row[i / 2];
			bool is = sees(seen.row[i / 2], column + at);
			p[n][i] = is ? exp2_flush(fmaf(p[n][i], scale2, -stats.lse2)) : 0;
			ds[n][i] = is ? p[n][i] * (ds[n][i] - stats.mean) : 0;
		}
}

/* Where the rows of a head are, in the order of its buckets. */
template <bool KEYS> struct sorted_head {
	sorted_side own, others;
	sorted_rows<const bf16> x, y, u, w;
	const query_stats *stats;

	__device__ __forceinline__ sorted_head(const bf16 *dout, const bf16 *qkv, const query_stats *all,
		attention_buckets by, attention_shape s, attention_head h, int i)
		: own(side_of(by, s, h, i, KEYS)), others(side_of(by, s, h, i, !KEYS)), stats(all + h.sums(s)) {
		head_rows<const bf16> q = part_of(qkv, s, h, 0), k = part_of(qkv, s, h, 1);
		head_rows<const bf16> v = part_of(qkv, s, h, 2), dy = rows_of(dout, s, h);
		x = sorted(KEYS ? k : q, own);
		y = sorted(KEYS ? v : dy, own);
		u = sorted(KEYS ? q : k, others);
		w = sorted(KEYS ? dy : v, others);
	}
};

/* Copies the columns from column on, and waits until no thread reads those before. */
template <int HS, bool KEYS>
__device__ __forceinline__ void load_columns(gradient_tiles<HS> &tiles, const sorted_head<KEYS> &h, int column, int t) {
	__syncthreads();
	load_sorted<HS>(tiles.u, h.u, column, t);
	load_sorted<HS>(tiles.w, h.w, column, t);
	int i = threadIdx.x;
	if (KEYS && i < TILE_ROWS) {
		bool inside = column + i < t;
		cp_async_8(tiles.stats + i, h.stats + (inside ? h.others.order[column + i] : 0), inside);
	}
	cp_async_commit();
	cp_async_wait<0>();
	__syncthreads();
}

/* Grid (b·nh, tiles of rows). */
template <int HS, bool KEYS>
__global__ void __launch_bounds__(TILE_THREADS, 2) bucket_backward(bf16 *dqkv, const bf16 *dout, const bf16 *qkv,
	const query_stats *stats, attention_buckets by, attention_shape s) {
	DYNAMIC_SHARED(gradient_tiles<HS>, tiles);
	SHARED(row_reach, seen, );
	attention_head head(s, blockIdx.x);
	int row = blockIdx.y * TILE_ROWS, rows = min(TILE_ROWS, head.t - row);
	if (rows <= 0) return;
	sorted_head<KEYS> h(dout, qkv, stats, by, s, head, blockIdx.x);
	load_sorted<HS>(tiles->x, h.x, row, head.t);
	load_sorted<HS>(tiles->y, h.y, row, head.t);
	cp_async_commit();
	reach_all<KEYS>(seen, h.own, h.others, by.count, row, head.t);
	warp_reach reaches(seen, rows);
	int mine = row + threadIdx.x / 32 * 16, g = threadIdx.x % 32 / 4;
	query_stats by_row[2];
#pragma unroll
	for (int half = 0; half < 2; half++) {
		int at = mine + g + 8 * half;
		by_row[half] = !KEYS && at < head.t ? h.stats[h.own.order[at]] : query_stats{0, 0};
	}
	float dx[HS / 8][4] = {}, dy[KEYS ? HS / 8 : 1][4] = {};
	int end = seen[rows - 1].hi, column = seen[0].lo;
	if (column < end) column = next_seen(seen, rows, column);
	for (; column < end; column = next_tile(seen, rows, column, end)) {
		load_columns<HS, KEYS>(*tiles, h, column, head.t);
#pragma unroll
		for (int at = 0; at < TILE_ROWS; at += 16) {
			if (!reaches.meets(column + at, 16)) continue;
			chunk_scores p = {}, ds = {};
			multiply<HS>(p, tiles->x, tiles->u, at);
			multiply<HS>(ds, tiles->y, tiles->w, at);
			probabilities<KEYS>(p, ds, by_row, tiles->stats + at, reaches, column + at, s.scale * LOG2_E);
			accumulate<HS>(dx, ds, tiles->u, at);
			if constexpr (KEYS) accumulate<HS>(dy, p, tiles->w, at);
		}
	}
	cp_async_wait<0>(); /* of own rows, where there was no column */
	__syncthreads();
	store_sorted<HS>(sorted(part_of(dqkv, s, head, KEYS), h.own), tiles->x, dx, mine, head.t, s.scale, s.scale);
	if constexpr (KEYS) store_sorted<HS>(sorted(part_of(dqkv, s, head, 2), h.own), tiles->x, dy, mine, head.t, 1, 1);
}

template <int HS, bool KEYS>
int32_t backward(void *stream, bf16 *dqkv, const bf16 *dout, const bf16 *qkv, const query_stats *stats,
	attention_buckets by, attention_shape s) {
	constexpr size_t BYTES = sizeof(gradient_tiles<HS>);
	int32_t status = allow_shared(bucket_backward<HS, KEYS>, BYTES);
	if (status != 0) return status;
	dim3 grid(s.b * s.nh, (s.t + TILE_ROWS - 1) / TILE_ROWS);
	LAUNCH((bucket_backward<HS, KEYS>), grid, TILE_THREADS, BYTES, stream, dqkv, dout, qkv, stats, by, s);
	return launched();
}

template <int HS>
int32_t both(void *stream, bf16 *dqkv, const bf16 *dout, const bf16 *qkv, const query_stats *stats, attention_buckets by,
	attention_shape s) {
	int32_t status = backward<HS, false>(stream, dqkv, dout, qkv, stats, by, s);
	return status != 0 ? status : backward<HS, true>(stream, dqkv, dout, qkv, stats, by, s);
}

} // namespace

int32_t attention_buckets_backward(void *stream, bf16 *dqkv, const bf16 *dout, const bf16 *qkv, const query_stats *stats,
	attention_buckets by, attention_shape s) {
	switch (s.hs) {
	case 32: return both<32>(stream, dqkv, dout, qkv, stats, by, s);
	case 64: return both<64>(stream, dqkv, dout, qkv, stats, by, s);
	case 128: return both<128>(stream, dqkv, dout, qkv, stats, by, s);
	}
	return DYNMO_CUDA_SHAPE;
}
