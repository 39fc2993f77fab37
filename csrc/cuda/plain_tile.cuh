/* Products of any shape, however operands are aligned, in float: a block of 256 threads
 * makes a tile of 64x64 results, 16 of each thread; it goes through k in steps of 16, for
 * which it keeps both operands' tiles in shared memory, read along the direction that is
 * contiguous. A result's sum is in ascending order of k, whatever the other sizes are. */
#ifndef DYNMO_PLAIN_TILE_CUH
#define DYNMO_PLAIN_TILE_CUH

#include "device.cuh"

enum { PLAIN_TILE = 64, PLAIN_DEPTH = 16, PLAIN_THREADS = 256, PLAIN_SIDE = PLAIN_TILE / 16 };

/* A matrix of `sides` vectors of `depth` elements each. */
template <typename E> struct plain_operand {
	const E *x;
	int64_t side_stride, depth_stride;
	int32_t sides, depth;
};

/* Both operands' tiles: shared memory. */
struct plain_tiles {
	float a[PLAIN_DEPTH][PLAIN_TILE + 1], b[PLAIN_DEPTH][PLAIN_TILE + 1];
};

/* Reads the tile of x that begins at vector side and element depth; what is outside of x
 * is 0. */
template <typename E>
__device__ __forceinline__ void plain_fill(float (&tile)[PLAIN_DEPTH][PLAIN_TILE + 1], const plain_operand<E> &x,
	int64_t side, int32_t depth) {
	for (int i = threadIdx.x; i < PLAIN_TILE * PLAIN_DEPTH; i += PLAIN_THREADS) {
		int s = x.depth_stride == 1 ? i / PLAIN_DEPTH : i % PLAIN_TILE;
		int d = x.depth_stride == 1 ? i % PLAIN_DEPTH : i / PLAIN_TILE;
		bool inside = side + s < x.sides && depth + d < x.depth;
		tile[d][s] = inside ? wide(x.x[(side + s) * x.side_stride + (depth + d) * x.depth_stride]) : 0.0f;
	}
}

/* The thread's row r and column c of a tile, so that neighbours have neighbours. */
__device__ __forceinline__ int plain_row(int r) { return threadIdx.x % 16 + 16 * r; }
__device__ __forceinline__ int plain_column(int c) { return threadIdx.x / 16 + 16 * c; }

/* Adds a·b of the tile that begins at (row, column) to sum. All threads call it. */
template <typename E>
__device__ __forceinline__ void plain_multiply(float (&sum)[PLAIN_SIDE][PLAIN_SIDE], plain_tiles &tiles,
	const plain_operand<E> &a, const plain_operand<E> &b, int64_t row, int64_t column) {
	for (int32_t depth = 0; depth < a.depth; depth += PLAIN_DEPTH) {
		plain_fill(tiles.a, a, row, depth);
		plain_fill(tiles.b, b, column, depth);
		__syncthreads();
		for (int d = 0; d < PLAIN_DEPTH; d++)
#pragma unroll
			for (int r = 0; r < PLAIN_SIDE; r++)
#pragma unroll
				for (int c = 0; c < PLAIN_SIDE; c++)
					sum[r][c] = fmaf(tiles.a[d][plain_row(r)], tiles.b[d][plain_column(c)], sum[r][c]);
		__syncthreads();
	}
}

#endif
