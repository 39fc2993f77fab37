/* Rows of the norms: how the threads of a block hold them. A row belongs to one warp,
 * or to up to sixteen when it is long; each thread holds HELD packs of it. */
#ifndef DYNMO_NORM_CUH
#define DYNMO_NORM_CUH

#include "pack.cuh"
#include "reduce.cuh"

const int HELD = 2;          /* packs of a row in a thread */
const int ROW_THREADS = 512; /* at most, for one row */

/* A row in the threads of blockDim.x: pack i of a thread begins at column at(i)
 * of a span of the row, which begins at from. */
template <typename E> struct span {
	static const int N = width<E>;
	int from;

	__device__ __forceinline__ int at(int i) const { return from + (i * blockDim.x + threadIdx.x) * N; }
	__device__ __forceinline__ static int columns() { return HELD * blockDim.x * N; }

	template <bool VECTOR> __device__ __forceinline__ void fetch(pack<E> (&p)[HELD], const E *row, int c) const
	{
#pragma unroll
		for (int i = 0; i < HELD; i++)
			p[i] = read<VECTOR, N>(row, at(i), c);
	}
};

/* The threads of a row: enough to hold it, if they may be as many; and rows
 * enough for a block of four warps. */
template <typename E> inline dim3 row_threads(int c)
{
	int threads = 32;
	while (threads < ROW_THREADS && threads * HELD * width<E> < c)
		threads *= 2;
	return dim3(threads, threads < 128 ? 128 / threads : 1);
}

#endif
