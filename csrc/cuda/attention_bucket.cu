/* Attention within buckets (kernel.Buckets), forward, on tensor cores. It computes the sums of
 * attention_forward.cu, over fewer keys. A block has 64 queries of a head, in the order of the buckets.
 * It first computes which keys each query sees (reach_all), on the device, so that the host need not
 * wait. Then it goes over the tiles of 64 keys that any of the queries sees. Each tile is copied to
 * shared memory while the tile before is computed. */
#include "attention_bucket.cuh"
#include "attention_softmax.cuh"

namespace {

typedef float score_tile[TILE_ROWS / 8][4]; /* 16 queries x 64 keys */

/* A lane's part of the warp's 16 queries, over the keys so far. Fragments are as mma.cuh has them: the
 * lane has rows g and g+8. */
template <int HS> struct query_state {
	uint32_t q[HS / 16][4];   /* the queries, as A */
	float o[HS / 8][4];       /* the outputs before they are divided by sum, as D */
	float largest[2], sum[2]; /* largest score of each row; sum of 2^(score - largest) over this lane's columns */
};

/* s = q·kᵀ·scale2, scores in log2 units, for the 64 keys from `column` on. It is -Inf where the query
 * does not see the key. */
template <int HS>
__device__ __forceinline__ void scores(score_tile &s, const query_state<HS> &r, const bf16 *keys, const warp_reach &seen,
	int column, float scale2) {
#pragma unroll
	for (int k = 0; k < HS / 16; k++)
#pragma unroll
		for (int n = 0; n < TILE_ROWS / 16; n++) {
			uint32_t b[4];
			load_b_rows<HS>(b, keys, 16 * n, 16 * k);
			mma_bf16_16816(s[2 * n], r.q[k], b[0], b[1]);
			mma_bf16_16816(s[2 * n + 1], r.q[k], b[2], b[3]);
		}
	column += threadIdx.x % 4 * 2;
#pragma unroll
	for (int n = 0; n < TILE_ROWS / 8; n++)
#pragma unroll
		for (int i = 0; i < 4; i++) s[n][i] = sees(seen.row[i / 2], column + 8 * n + i % 2) ? s[n][i] * scale2 : -INFINITY;
}

/* Turns scores s into 2^(s - largest) and adds them to sum. If largest grows, it first scales sum and o
 * down by 2^(old - new). */
template <int HS> __device__ __forceinline__ void softmax(score_tile &s, query_state<HS> &r) {
#pragma unroll
	for (int half = 0; half < 2; half++) {
		float most = r.largest[half];
#pragma unroll
		for (int n = 0; n < TILE_ROWS / 8; n++) most = fmaxf(most, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
		most = quad_max(most);
		float base = most == -INFINITY ? 0 : most; /* the row has seen no key yet */
		float shrink = exp2_flush(r.largest[half] - base), sum = 0;
#pragma unroll
		for (int n = 0; n < TILE_ROWS / 8; n++)
#pragma unroll
			for (int i = 2 * half; i < 2 * half + 2; i++) sum += s[n][i] = exp2_flush(s[n][i] - base);
		r.largest[half] = most;
		r.sum[half] = fmaf(r.sum[half], shrink, sum);
#pragma unroll
		for (int n = 0; n < HS / 8; n++)
#pragma unroll
			for (int i = 2 * half; i < 2 * half + 2; i++) r.o[n][i] *= shrink;
	}
}

/* o += P·V. */
template <int HS> __device__ __forceinline__ void weigh(query_state<HS> &r, const score_tile &p, const bf16 *values) {
#pragma unroll
	for (int k = 0; k < TILE_ROWS / 16; k++) {
		uint32_t a[4];
		pack_a(a, p[2 * k], p[2 * k + 1]);
#pragma unroll
		for (int n = 0; n < HS / 16; n++) {
			uint32_t b[4];
			load_b_channels<HS>(b, values, 16 * k, 16 * n);
			mma_bf16_16816(r.o[2 * n], a, b[0], b[1]);
			mma_bf16_16816(r.o[2 * n + 1], a, b[2], b[3]);
		}
	}
}

/* Grid (b·nh, tiles of 64 queries). Shared memory has two stages, which tiles take in turn. A stage is
 * a tile of keys and a tile of values. The second stage is free at first, and passes the queries. */
template <int HS>
__global__ void __launch_bounds__(TILE_THREADS, 2)
	bucket_forward(bf16 *out, float *lse, const bf16 *qkv, attention_buckets by, attention_shape s) {
	DYNAMIC_SHARED(bf16, shared);
	SHARED(row_reach, seen, );
	attention_head h(s, blockIdx.x);
	int row = blockIdx.y * TILE_ROWS, rows = min(TILE_ROWS, h.t - row);
	if (rows <= 0) return;
	sorted_side queries = side_of(by, s, h, blockIdx.x, 0), keys = side_of(by, s, h, blockIdx.x, 1);
	sorted_rows<const bf16> k = sorted(part_of(qkv, s, h, 1), keys), v = sorted(part_of(qkv, s, h, 2), keys);
	auto begin = [&](int column, int stage) { /* begins to copy 64 keys and values from column on */
		bf16 *to = shared + stage * 2 * TILE_SIZE<HS>;
		load_sorted<HS>(to, k, column, h.t);
		load_sorted<HS>(to + TILE_SIZE<HS>, v, column, h.t);
		cp_async_commit();
	};
	bf16 *second = shared + 2 * TILE_SIZE<HS>; /* the second stage */
	load_sorted<HS>(second, sorted(part_of(qkv, s, h, 0), queries), row, h.t);
	cp_async_commit();
	reach_all<false>(seen, queries, keys, by.count, row, h.t);
	int end = seen[rows - 1].hi, column = seen[0].lo; /* the block sees no keys but [column, end) */
	if (column < end) column = next_seen(seen, rows, column);
	if (column < end) begin(column, 0);
	if (column < end)
		cp_async_wait<1>(); /* for the queries, not for the first tile */
	else
		cp_async_wait<0>();
	__syncthreads(); /* all threads see the queries */
	query_state<HS> r = {};
	own_rows<HS>(r.q, second);
	r.largest[0] = r.largest[1] = -INFINITY;
	warp_reach own(seen, rows);
	for (int stage = 0; column < end; stage ^= 1) {
		int next = next_tile(seen, rows, column, end);
		cp_async_wait<0>();
		__syncthreads(); /* this tile has arrived, and no thread reads the other stage any more */
		if (next < end) begin(next, stage ^ 1);
		const bf16 *tile = shared + stage * 2 * TILE_SIZE<HS>;
		if (own.meets(column, TILE_ROWS)) {
			score_tile p = {};
			scores<HS>(p, r, tile, own, column, s.scale * LOG2_E);
			softmax<HS>(p, r);
			weigh<HS>(r, p, tile + TILE_SIZE<HS>);
		}
		column = next;
	}
	__syncthreads(); /* no thread reads a tile any more */
	float inverse[2];
	int mine = row + threadIdx.x / 32 * 16, g = threadIdx.x % 32 / 4; /* mine: the warp's first query */
#pragma unroll
	for (int half = 0; half < 2; half++) {
		float sum = quad_sum(r.sum[half]);
		inverse[half] = sum == 0 ? 0 : 1 / sum;
		if (threadIdx.x % 4 == 0 && mine + g + 8 * half < h.t)
			lse[h.sums(s) + queries.order[mine + g + 8 * half]] = sum == 0 ? -INFINITY : r.largest[half] * LN_2 + logf(sum);
	}
	store_sorted<HS>(sorted(rows_of(out, s, h), queries), shared, r.o, mine, h.t, inverse[0],
		inverse[1]);
}

template <int HS>
int32_t forward(void *stream, bf16 *out, float *lse, const bf16 *qkv, attention_buckets by, attention_shape s) {
	constexpr size_t BYTES = 4 * TILE_SIZE<HS> * sizeof(bf16);
	int32_t status = allow_shared(bucket_forward<HS>, BYTES);
	if (status != 0) return status;
	dim3 grid(s.b * s.nh, (s.t + TILE_ROWS - 1) / TILE_ROWS);
	LAUNCH((bucket_forward<HS>), grid, TILE_THREADS, BYTES, stream, out, lse, qkv, by, s);
	return launched();
}

} // namespace

int32_t attention_buckets_forward(void *stream, bf16 *out, float *lse, const bf16 *qkv, attention_buckets by,
	attention_shape s) {
	switch (s.hs) {
	case 32: return forward<32>(stream, out, lse, qkv, by, s);
	case 64: return forward<64>(stream, out, lse, qkv, by, s);
	case 128: return forward<128>(stream, out, lse, qkv, by, s);
	}
	return DYNMO_CUDA_SHAPE;
}
