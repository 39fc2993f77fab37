/* Rows by warps: each has a row, or a tile of 32 packs of its columns. */
#ifndef DYNMO_ROWS_CUH
#define DYNMO_ROWS_CUH

#include "pack.cuh"

const int WARPS = 8; /* of a block, each with a row of its own */

__device__ __forceinline__ int warp_row() { return blockIdx.x * WARPS + threadIdx.y; }

template <typename E> __device__ __forceinline__ int tile_column()
{
	return (blockIdx.y * 32 + threadIdx.x) * width<E>;
}

template <typename E> inline dim3 row_tiles(int rows, int c) { return dim3(parts(rows, WARPS), parts(c, 32 * width<E>)); }

#endif
