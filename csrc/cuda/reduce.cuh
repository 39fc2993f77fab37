/* Sums and maxima over the threads of a warp or of a row, in an order that
 * depends on their number only. */
#ifndef DYNMO_REDUCE_CUH
#define DYNMO_REDUCE_CUH

#include "device.cuh"

struct plus {
	template <typename T> __device__ __forceinline__ T operator()(T a, T b) const { return a + b; }
};

struct larger {
	template <typename T> __device__ __forceinline__ T operator()(T a, T b) const { return a > b ? a : b; }
};

/* warp_reduce combines x over a warp and gives every lane the result. op
 * commutes, so that they all get the same bits. */
template <typename T, typename OP> __device__ __forceinline__ T warp_reduce(T x, OP op)
{
#pragma unroll
	for (int apart = 16; apart > 0; apart /= 2)
		x = op(x, __shfl_xor_sync(0xffffffff, x, apart));
	return x;
}

/* row_reduce combines x over the blockDim.x threads, whole warps, that share
 * threadIdx.y, and gives them all the result: warps in ascending order. scratch
 * is shared, one element for each warp of the block. All threads of the block
 * call it. */
template <typename T, typename OP> __device__ __forceinline__ T row_reduce(T x, OP op, T *scratch)
{
	x = warp_reduce(x, op);
	if (blockDim.x == 32) return x;
	int warps = blockDim.x / 32;
	T *mine = scratch + threadIdx.y * warps;
	if (threadIdx.x % 32 == 0) mine[threadIdx.x / 32] = x;
	__syncthreads();
	x = mine[0];
	for (int w = 1; w < warps; w++)
		x = op(x, mine[w]);
	__syncthreads();
	return x;
}

/* rank_of returns how many of a block's flags before the thread's are set, and in *all how
 * many are. counts is shared, one element for each warp. All threads of the block call it:
 * whole warps, in one row. */
__device__ __forceinline__ int rank_of(bool flag, int *all, int *counts)
{
	unsigned set = __ballot_sync(0xffffffff, flag);
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32, before = __popc(set & ((1u << lane) - 1));
	if (lane == 0) counts[warp] = __popc(set);
	__syncthreads();
	int sum = 0;
	for (int w = 0; w < static_cast<int>(blockDim.x) / 32; w++) {
		if (w == warp) before += sum;
		sum += counts[w];
	}
	__syncthreads();
	*all = sum;
	return before;
}

#endif
