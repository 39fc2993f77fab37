/* Tiles of a head for tensor cores: ROWS x HS bfloat16 in shared memory. */
#ifndef DYNMO_ATTENTION_TILE_CUH
#define DYNMO_ATTENTION_TILE_CUH

#include "attention.cuh"

constexpr int TILE_ROWS = 64, TILE_THREADS = 128, TILE_WARPS = TILE_THREADS / 32;

/* Elements from row to row. 16 bytes of padding put the 8 rows that ldmatrix
 * reads at once into different banks. */
template <int HS> constexpr int TILE_STRIDE = HS + 8;
template <int HS> constexpr int TILE_SIZE = TILE_ROWS * TILE_STRIDE<HS>;

/* The first of the 16·MT rows of a thread's warp, of the block's. */
template <int MT> __device__ __forceinline__ int warp_rows(int thread) { return thread / 32 * 16 * MT; }

/* Begins to copy rows [first, first + TILE_ROWS) of m, as far as there are t. */
template <int HS>
__device__ __forceinline__ void load_tile(bf16 *tile, head_rows<const bf16> m, int first, int t) {
	constexpr int CHUNKS = HS / 8; /* of 16 bytes, in a row */
	constexpr int STEP = TILE_THREADS / CHUNKS; /* rows that the block copies at once */
	int row = threadIdx.x / CHUNKS, column = threadIdx.x % CHUNKS * 8;
	const bf16 *from = m.row(first + row) + column;
	bf16 *to = tile + row * TILE_STRIDE<HS> + column;
#pragma unroll
	for (int i = 0; i < TILE_ROWS / STEP; i++) {
		bool inside = first + row + i * STEP < t;
		cp_async_16(to + i * STEP * TILE_STRIDE<HS>, inside ? from : m.first, inside);
		from += STEP * m.stride;
	}
}

/* Copies rows [first, first + 16·MT) of m, as far as there are t, to the warp's own part
 * of shared memory. */
template <int HS, int MT>
__device__ __forceinline__ void load_rows(bf16 *mine, head_rows<const bf16> m, int first, int t) {
	constexpr int CHUNKS = HS / 8; /* of 16 bytes, in a row */
	int lane = threadIdx.x % 32;
#pragma unroll
	for (int i = 0; i < MT * CHUNKS / 2; i++) {
		int row = (i * 32 + lane) / CHUNKS, column = lane % CHUNKS * 8;
		bool inside = first + row < t;
		cp_async_16(mine + row * TILE_STRIDE<HS> + column, m.row(inside ? first + row : 0) + column, inside);
	}
	cp_async_commit();
	cp_async_wait<0>();
	__syncwarp(); /* orders memory; ldmatrix holds lanes together, so no order of threads shows it */
}

/* The same rows as A fragments, by way of the warp's own part of shared memory. */
template <int HS, int MT>
__device__ __forceinline__ void load_a(uint32_t (&a)[MT][HS / 16][4], bf16 *mine, head_rows<const bf16> m, int first, int t) {
	int lane = threadIdx.x % 32;
	load_rows<HS, MT>(mine, m, first, t);
#pragma unroll
	for (int i = 0; i < MT; i++)
#pragma unroll
		for (int k = 0; k < HS / 16; k++)
			ldmatrix_x4(a[i][k], mine + (16 * i + lane % 16) * TILE_STRIDE<HS> + 16 * k + lane / 16 * 8);
	__syncwarp(); /* no lane writes there before all have read */
}

/* B fragments of 16 rows of a tile as 16 columns, 16 channels as k: b[0], b[1]
 * are those of the first 8 columns. For x·tileᵀ. */
template <int HS>
__device__ __forceinline__ void load_b_rows(uint32_t (&b)[4], const bf16 *tile, int row, int channel) {
	int lane = threadIdx.x % 32;
	ldmatrix_x4(b, tile + (row + lane / 16 * 8 + lane % 8) * TILE_STRIDE<HS> + channel + lane / 8 % 2 * 8);
}

/* B fragments of 16 channels of a tile as 16 columns, 16 rows as k. For x·tile. */
template <int HS>
__device__ __forceinline__ void load_b_channels(uint32_t (&b)[4], const bf16 *tile, int row, int channel) {
	int lane = threadIdx.x % 32;
	ldmatrix_x4_trans(b, tile + (row + lane % 16) * TILE_STRIDE<HS> + channel + lane / 16 * 8);
}

/* The A fragment of two neighbouring D. */
__device__ __forceinline__ void pack_a(uint32_t (&a)[4], const float (&left)[4], const float (&right)[4]) {
	a[0] = pack_bf16(left[0], left[1]);
	a[1] = pack_bf16(left[2], left[3]);
	a[2] = pack_bf16(right[0], right[1]);
	a[3] = pack_bf16(right[2], right[3]);
}

/* Writes d·factor to rows [first, first + 16) of m, as far as there are t; factor[0] is
 * that of the upper 8 rows. The rows go through the warp's own part of shared memory, so
 * that a warp writes 16 bytes a lane and whole lines. */
template <int HS>
__device__ __forceinline__ void store_d(head_rows<bf16> m, bf16 *mine, const float (&d)[HS / 8][4], int first, int t,
	const float (&factor)[2]) {
	constexpr int CHUNKS = HS / 8; /* of 16 bytes, in a row */
	int lane = thread_again() % 32, g = lane / 4, channel = lane % 4 * 2;
#pragma unroll
	for (int half = 0; half < 2; half++)
#pragma unroll
		for (int n = 0; n < HS / 8; n++)
			*reinterpret_cast<uint32_t *>(mine + (g + 8 * half) * TILE_STRIDE<HS> + 8 * n + channel) =
				pack_bf16(d[n][2 * half] * factor[half], d[n][2 * half + 1] * factor[half]);
	__syncwarp();
#pragma unroll
	for (int i = 0; i < CHUNKS / 2; i++) {
		int row = (i * 32 + lane) / CHUNKS, column = lane % CHUNKS * 8;
		if (first + row < t)
			*reinterpret_cast<uint4 *>(m.row(first + row) + column) =
				*reinterpret_cast<const uint4 *>(mine + row * TILE_STRIDE<HS> + column);
	}
	__syncwarp(); /* no lane writes there before all have read */
}

#endif
