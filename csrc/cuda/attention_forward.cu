/* Attention forward on tensor cores. A block has ROWS = 64·MT queries of a head,
 * 16·MT a warp, and their fragments stay in registers. Asynchronous copies bring
 * tiles of 64 keys and values up to the diagonal, each during the tile before.
 * Blocks with most tiles start first.
 *
 * S is the scores of a tile in log2 units, so that 2^x is one instruction. m, l
 * and o are the largest score, the sum and the output of a row so far (Milakov &
 * Gimelshein 2018):
 *
 *	m' = max(m, max_j S_j)    a = 2^(m - m')    P = 2^(S - m')
 *	l' = a·l + Σ_j P_j        o' = a·o + P·V
 *
 * MT is 2 where registers allow: a fragment of keys then serves 32 queries, and
 * shared memory is read half as often. */
#include "attention_softmax.cuh"
#include "attention_tile.cuh"

namespace {

template <int HS, int MT> struct query_rows {
	uint32_t q[MT][HS / 16][4];
	float o[MT][HS / 8][4];
	float largest[MT][2], sum[MT][2]; /* of rows g and g+8; sum: of this lane's columns */
};

typedef float score_tile[TILE_ROWS / 8][4]; /* 16 queries x 64 keys */

/* s = q·kᵀ. */
template <int HS, int MT>
__device__ __forceinline__ void scores(score_tile (&s)[MT], const query_rows<HS, MT> &r, const bf16 *keys) {
#pragma unroll
	for (int m = 0; m < MT; m++) clear(s[m]);
#pragma unroll
	for (int k = 0; k < HS / 16; k++)
#pragma unroll
		for (int n = 0; n < TILE_ROWS / 16; n++) {
			uint32_t b[4];
			load_b_rows<HS>(b, keys, 16 * n, 16 * k);
#pragma unroll
			for (int m = 0; m < MT; m++) {
				mma_bf16_16816(s[m][2 * n], r.q[m][k], b[0], b[1]);
				mma_bf16_16816(s[m][2 * n + 1], r.q[m][k], b[2], b[3]);
			}
		}
}

/* o += P·V. */
template <int HS, int MT>
__device__ __forceinline__ void weigh(query_rows<HS, MT> &r, const score_tile (&p)[MT], const bf16 *values) {
#pragma unroll
	for (int k = 0; k < TILE_ROWS / 16; k++) {
		uint32_t a[MT][4];
#pragma unroll
		for (int m = 0; m < MT; m++) pack_a(a[m], p[m][2 * k], p[m][2 * k + 1]);
#pragma unroll
		for (int n = 0; n < HS / 16; n++) {
			uint32_t b[4];
			load_b_channels<HS>(b, values, 16 * k, 16 * n);
#pragma unroll
			for (int m = 0; m < MT; m++) {
				mma_bf16_16816(r.o[m][2 * n], a[m], b[0], b[1]);
				mma_bf16_16816(r.o[m][2 * n + 1], a[m], b[2], b[3]);
			}
		}
	}
}

/* One tile of keys and values, those from key on, for the warp's queries from query on. */
template <int HS, int MT>
__device__ __forceinline__ void attend(query_rows<HS, MT> &r, const bf16 *keys, const bf16 *values, int query, int key,
	float scale2) {
	score_tile s[MT];
	scores<HS, MT>(s, r, keys);
#pragma unroll
	for (int m = 0; m < MT; m++) {
		if (key + TILE_ROWS - 1 > query + 16 * m) mask_future(s[m], query + 16 * m, key);
		float shrink[2];
		softmax(s[m], shrink, r.largest[m], r.sum[m], scale2);
		rescale(r.o[m], shrink);
	}
	weigh<HS, MT>(r, s, values);
}

/* Writes out = o/sum, and lse. */
template <int HS, int MT>
__device__ __forceinline__ void finish(query_rows<HS, MT> &r, bf16 *mine, head_rows<bf16> out, float *lse, int query, int t) {
#pragma unroll
	for (int m = 0; m < MT; m++) {
		float inverse[2];
#pragma unroll
		for (int half = 0; half < 2; half++) {
			float sum = quad_sum(r.sum[m][half]);
			int thread = thread_again(), row = query + 16 * m + 8 * half + thread % 32 / 4;
			inverse[half] = 1 / sum;
			if (thread % 4 == 0 && row < t) lse[row] = r.largest[m][half] * LN_2 + logf(sum);
		}
		store_d<HS>(out, mine, r.o[m], query + 16 * m, t, inverse);
	}
}

/* Grid (b·nh, tiles of queries). Three blocks on a multiprocessor would spill registers. */
template <int HS, int MT>
__global__ void __launch_bounds__(TILE_THREADS, 2)
	attention_forward(bf16 *out, float *lse, const bf16 *qkv, attention_shape s) {
	DYNAMIC_SHARED(bf16, shared);
	attention_head h(s, blockIdx.x);
	constexpr int ROWS = 16 * MT * TILE_WARPS;
	int first = (gridDim.y - 1 - blockIdx.y) * ROWS, query = first + warp_rows<MT>(threadIdx.x);
	if (first >= h.t) return;
	head_rows<const bf16> q = part_of(qkv, s, h, 0), k = part_of(qkv, s, h, 1), v = {k.first + s.keys, k.stride};
	int end = min(first + ROWS, h.t);
	load_tile<HS>(shared, k, 0, h.t);
	load_tile<HS>(shared + TILE_SIZE<HS>, v, 0, h.t);
	cp_async_commit();

	query_rows<HS, MT> r;
	bf16 *second = shared + 2 * TILE_SIZE<HS>; /* the second stage, which is free at first */
	load_a<HS, MT>(r.q, second + warp_rows<MT>(threadIdx.x) * TILE_STRIDE<HS>, q, query, h.t);
#pragma unroll
	for (int m = 0; m < MT; m++) {
		clear(r.o[m]);
		r.largest[m][0] = r.largest[m][1] = -INFINITY;
		r.sum[m][0] = r.sum[m][1] = 0;
	}
	for (int key = 0, stage = 0; key < end; key += TILE_ROWS, stage ^= 1) {
		const bf16 *keys = shared + stage * 2 * TILE_SIZE<HS>;
		cp_async_wait<0>();
		__syncthreads(); /* this tile is there, and no thread reads the other any more */
		if (key + TILE_ROWS < end) {
			bf16 *next = shared + (stage ^ 1) * 2 * TILE_SIZE<HS>;
			load_tile<HS>(next, k, key + TILE_ROWS, h.t);
			load_tile<HS>(next + TILE_SIZE<HS>, v, key + TILE_ROWS, h.t);
			cp_async_commit();
		}
		if (key < query + 16 * MT) attend<HS, MT>(r, keys, keys + TILE_SIZE<HS>, query, key, s.scale * LOG2_E);
	}
	__syncthreads(); /* no thread reads a tile any more */
	h = attention_head(s, block_again()); /* computed again: keeping it in the loop would cost registers */
	int own = warp_rows<MT>(thread_again());
	finish<HS, MT>(r, shared + own * TILE_STRIDE<HS>, rows_of(out, s, h), lse + h.sums(s),
		(gridDim.y - 1 - blockIdx.y) * ROWS + own, h.t);
}

template <int HS, int MT>
int32_t forward(void *stream, bf16 *out, float *lse, const bf16 *qkv, attention_shape s) {
	constexpr int ROWS = 16 * MT * TILE_WARPS;
	constexpr size_t BYTES = 4 * TILE_SIZE<HS> * sizeof(bf16);
	int32_t status = allow_shared(attention_forward<HS, MT>, BYTES);
	if (status != 0) return status;
	dim3 grid(s.b * s.nh, (s.t + ROWS - 1) / ROWS);
	LAUNCH((attention_forward<HS, MT>), grid, TILE_THREADS, BYTES, stream, out, lse, qkv, s);
	return launched();
}

} // namespace

int32_t attention_tiles_forward(void *stream, bf16 *out, float *lse, const bf16 *qkv, attention_shape s) {
	switch (s.hs) {
	case 32: return forward<32, 2>(stream, out, lse, qkv, s);
	case 64: return forward<64, 2>(stream, out, lse, qkv, s);
	case 128: return forward<128, 1>(stream, out, lse, qkv, s);
	}
	return DYNMO_CUDA_SHAPE;
}
