/* Attention backward on tensor cores. One kernel serves twice: its block owns 64·MT
 * rows of a head and goes over tiles of 64 columns of the scores. By queries, rows
 * are queries and columns keys; by keys it is the transpose. With x and y of the
 * rows, u and w of the columns,
 *
 *	              x    y     u    w
 *	by queries    q    dout  k    v       dq = scale·Σ ds·u
 *	by keys       k    v     q    dout    dk = scale·Σ ds·u,  dv = Σ p·w
 *
 *	p = 2^(scale·log2(e)·x·uᵀ - lse2)    ds = p·(y·wᵀ - mean)
 *
 * where lse2 and mean are the query's. Each warp has its own 16·MT rows. x, y, p,
 * ds and the sums stay in registers; shared memory has only the tiles of u and w.
 * Each sum takes columns in ascending order. By keys, a sum takes the heads that
 * share the keys one after the other. Blocks with most tiles start first. */
#include "attention_tile.cuh"

namespace {

template <int HS, int MT, bool KEYS> struct gradient_rows {
	uint32_t x[MT][HS / 16][4], y[MT][HS / 16][4];
	float dx[MT][HS / 8][4], dy[KEYS ? MT : 1][KEYS ? HS / 8 : 1][4]; /* dy only by keys */
	query_stats stats[MT][2];                                         /* by queries, of rows g and g+8 */
};

/* A tile of columns in shared memory. */
template <int HS> struct column_tile {
	bf16 u[TILE_SIZE<HS>], w[TILE_SIZE<HS>];
	query_stats stats[TILE_ROWS]; /* by keys */
};

typedef float chunk_scores[2][4]; /* 16 rows x 16 columns */

/* out = a·tileᵀ for 16 columns. */
template <int HS, int MT>
__device__ __forceinline__ void multiply(chunk_scores (&out)[MT], const uint32_t (&a)[MT][HS / 16][4],
	const bf16 *tile, int column) {
#pragma unroll
	for (int m = 0; m < MT; m++) clear(out[m]);
#pragma unroll
	for (int k = 0; k < HS / 16; k++) {
		uint32_t b[4];
		load_b_rows<HS>(b, tile, column, 16 * k);
#pragma unroll
		for (int m = 0; m < MT; m++) {
			mma_bf16_16816(out[m][0], a[m][k], b[0], b[1]);
			mma_bf16_16816(out[m][1], a[m][k], b[2], b[3]);
		}
	}
}

/* sum += a·tile, of 16 rows of it. */
template <int HS, int MT>
__device__ __forceinline__ void accumulate(float (&sum)[MT][HS / 8][4], const uint32_t (&a)[MT][4], const bf16 *tile,
	int row) {
#pragma unroll
	for (int n = 0; n < HS / 16; n++) {
		uint32_t b[4];
		load_b_channels<HS>(b, tile, row, 16 * n);
#pragma unroll
		for (int m = 0; m < MT; m++) {
			mma_bf16_16816(sum[m][2 * n], a[m], b[0], b[1]);
			mma_bf16_16816(sum[m][2 * n + 1], a[m], b[2], b[3]);
		}
	}
}

/* Turns scores and y·wᵀ into p and ds. row and column are those of the
 * fragment's first element. */
template <bool KEYS>
__device__ __forceinline__ void probabilities(chunk_scores &p, chunk_scores &ds, const query_stats (&by_row)[2],
	const query_stats *by_column, float scale2, int row, int column) {
	int r = row + threadIdx.x % 32 / 4, c = threadIdx.x % 4 * 2;
	bool diagonal = KEYS ? column < row + 15 : column + 15 > row;
#pragma unroll
	for (int n = 0; n < 2; n++)
#pragma unroll
		for (int i = 0; i < 4; i++) {
			query_stats stats = KEYS ? by_column[8 * n + c + i % 2] : by_row[i / 2];
			int ahead = column + 8 * n + c + i % 2 - (r + i / 2 * 8); /* of the row's index */
			bool future = diagonal && (KEYS ? ahead < 0 : ahead > 0);
			p[n][i] = future ? 0 : exp2_flush(fmaf(p[n][i], scale2, -stats.lse2));
			ds[n][i] = p[n][i] * (ds[n][i] - stats.mean);
		}
}

/* 16 columns for the warp's rows: column of the tile, which begins at first. */
template <int HS, int MT, bool KEYS>
__device__ __forceinline__ void differentiate(gradient_rows<HS, MT, KEYS> &r, const column_tile<HS> &tile, int row,
	int first, int column, float scale2) {
	chunk_scores p[MT], ds[MT];
	uint32_t a[MT][4];
	multiply<HS, MT>(p, r.x, tile.u, column);
	multiply<HS, MT>(ds, r.y, tile.w, column);
#pragma unroll
	for (int m = 0; m < MT; m++)
		probabilities<KEYS>(p[m], ds[m], r.stats[m], tile.stats + column, scale2, row + 16 * m, first + column);
#pragma unroll
	for (int m = 0; m < MT; m++) pack_a(a[m], ds[m][0], ds[m][1]);
	accumulate<HS, MT>(r.dx, a, tile.u, column);
	if constexpr (KEYS) {
#pragma unroll
		for (int m = 0; m < MT; m++) pack_a(a[m], p[m][0], p[m][1]);
		accumulate<HS, MT>(r.dy, a, tile.w, column);
	}
}

/* Where the operands of a head are; out is its part of dqkv that belongs to x. */
template <bool KEYS> struct gradient_head {
	head_rows<const bf16> x, y, u, w;
	const query_stats *stats;
	/* Goes on to the queries of the next head, of those that share keys. */
	__device__ __forceinline__ void next(int hs, int t) {
		u.first += hs;
		w.first += hs;
		stats += t;
	}
	__device__ __forceinline__ gradient_head(const bf16 *dout, const bf16 *qkv, const query_stats *all,
		attention_shape s, attention_head head) {
		head_rows<const bf16> q = part_of(qkv, s, head, 0), k = part_of(qkv, s, head, 1);
		head_rows<const bf16> v = part_of(qkv, s, head, 2), dy = rows_of(dout, s, head);
		x = KEYS ? k : q;
		y = KEYS ? v : dy;
		u = KEYS ? q : k;
		w = KEYS ? dy : v;
		stats = all + head.sums(s);
	}
};

/* Reads the warp's rows, from row on. */
template <int HS, int MT, bool KEYS>
__device__ __forceinline__ void begin(gradient_rows<HS, MT, KEYS> &r, bf16 *mine, const gradient_head<KEYS> &h, int row, int t) {
	load_a<HS, MT>(r.x, mine, h.x, row, t);
	load_a<HS, MT>(r.y, mine, h.y, row, t);
#pragma unroll
	for (int m = 0; m < MT; m++) {
		clear(r.dx[m]);
		if constexpr (KEYS) clear(r.dy[m]);
#pragma unroll
		for (int half = 0; half < 2; half++) {
			int query = row + 16 * m + 8 * half + threadIdx.x % 32 / 4;
			r.stats[m][half] = !KEYS && query < t ? h.stats[query] : query_stats{0, 0};
		}
	}
}

/* Begins to copy columns [first, first + 64). Queries that do not exist have
 * statistics of 0 and add nothing, as their dout is 0. */
template <int HS, bool KEYS>
__device__ __forceinline__ void load_columns(column_tile<HS> &tile, const gradient_head<KEYS> &h, int first, int t) {
	load_tile<HS>(tile.u, h.u, first, t);
	load_tile<HS>(tile.w, h.w, first, t);
	int i = threadIdx.x;
	if (KEYS && i < TILE_ROWS) cp_async_8(tile.stats + i, h.stats + (first + i < t ? first + i : 0), first + i < t);
	cp_async_commit();
}

/* The heads whose sums a block makes. */
template <bool KEYS> __device__ __forceinline__ int heads_of(attention_shape s) { return KEYS ? s.share : 1; }

/* Grid (b·nh or, by keys, b·nh/share, tiles of rows). Three blocks by keys on a
 * multiprocessor would spill registers. */
template <int HS, int MT, bool KEYS>
__global__ void __launch_bounds__(TILE_THREADS, HS == 32 && !KEYS ? 3 : 2)
	attention_backward(bf16 *dqkv, const bf16 *dout, const bf16 *qkv, const query_stats *stats, attention_shape s) {
	constexpr int ROWS = 16 * MT * TILE_WARPS;
	DYNAMIC_SHARED(column_tile<HS>, tiles);
	int block = KEYS ? blockIdx.y : gridDim.y - 1 - blockIdx.y, row = block * ROWS + warp_rows<MT>(threadIdx.x);
	attention_head head(s, blockIdx.x * heads_of<KEYS>(s));
	if (block * ROWS >= head.t) return;
	int begins = KEYS ? block * ROWS : 0, ends = KEYS ? head.t : min((block + 1) * ROWS, head.t);
	int left = (ends - begins + TILE_ROWS - 1) / TILE_ROWS * heads_of<KEYS>(s); /* tiles of columns */
	gradient_head<KEYS> h(dout, qkv, stats, s, head);
	load_columns<HS, KEYS>(tiles[0], h, begins, head.t);
	gradient_rows<HS, MT, KEYS> r;
	begin<HS, MT, KEYS>(r, tiles[1].u + warp_rows<MT>(threadIdx.x) * TILE_STRIDE<HS>, h, row, head.t); /* its place is free */
	for (int first = begins, stage = 0; left > 0; left--, stage ^= 1) {
		cp_async_wait<0>();
		__syncthreads(); /* this tile is there, and no thread reads the other any more */
		int next = first + TILE_ROWS;
		if (KEYS && next >= ends) {
			next = begins;
			h.next(HS, head.t);
		}
		if (left > 1) load_columns<HS, KEYS>(tiles[stage ^ 1], h, next, head.t);
#pragma unroll 1 /* more would spill */
		for (int column = 0; column < TILE_ROWS; column += 16)
			if (KEYS ? first + column + 15 >= row : first + column < row + 16 * MT)
				differentiate<HS, MT, KEYS>(r, tiles[stage], row, first, column, s.scale * LOG2_E);
		first = next;
	}
	__syncthreads(); /* no thread reads a tile any more */
	head = attention_head(s, block_again() * heads_of<KEYS>(s)); /* computed again: keeping it in the loop would cost registers */
	row = block * ROWS + warp_rows<MT>(thread_again());
	bf16 *mine = tiles[0].u + (row - block * ROWS) * TILE_STRIDE<HS>;
#pragma unroll
	for (int m = 0; m < MT; m++) {
		store_d<HS>(part_of(dqkv, s, head, KEYS), mine, r.dx[m], row + 16 * m, head.t, {s.scale, s.scale});
		if constexpr (KEYS) store_d<HS>(part_of(dqkv, s, head, 2), mine, r.dy[m], row + 16 * m, head.t, {1, 1});
	}
}

template <int HS, int MT, bool KEYS>
int32_t backward(void *stream, bf16 *dqkv, const bf16 *dout, const bf16 *qkv, const query_stats *stats,
	attention_shape s) {
	constexpr int ROWS = 16 * MT * TILE_WARPS;
	constexpr size_t BYTES = 2 * sizeof(column_tile<HS>);
	int32_t status = allow_shared(attention_backward<HS, MT, KEYS>, BYTES);
	if (status != 0) return status;
	dim3 grid(s.b * (KEYS ? s.nh / s.share : s.nh), (s.t + ROWS - 1) / ROWS);
	LAUNCH((attention_backward<HS, MT, KEYS>), grid, TILE_THREADS, BYTES, stream, dqkv, dout, qkv, stats, s);
	return launched();
}

/* MT is 2 where the registers of a thread hold it. */
template <int HS>
int32_t both(void *stream, bf16 *dqkv, const bf16 *dout, const bf16 *qkv, const query_stats *stats,
	attention_shape s) {
	int32_t status = backward<HS, HS <= 32 ? 2 : 1, true>(stream, dqkv, dout, qkv, stats, s);
	if (status != 0) return status;
	return backward<HS, HS <= 64 ? 2 : 1, false>(stream, dqkv, dout, qkv, stats, s);
}

} // namespace

int32_t attention_tiles_backward(void *stream, bf16 *dqkv, const bf16 *dout, const bf16 *qkv,
	const query_stats *stats, attention_shape s) {
	switch (s.hs) {
	case 32: return both<32>(stream, dqkv, dout, qkv, stats, s);
	case 64: return both<64>(stream, dqkv, dout, qkv, stats, s);
	case 128: return both<128>(stream, dqkv, dout, qkv, stats, s);
	}
	return DYNMO_CUDA_SHAPE;
}
