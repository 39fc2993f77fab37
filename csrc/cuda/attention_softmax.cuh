/* The softmax of scores in the fragments of tensor cores (mma.cuh's D), rows g and g+8
 * of 16 in each lane, tile by tile of keys (attention_forward.cu has the equations). */
#ifndef DYNMO_ATTENTION_SOFTMAX_CUH
#define DYNMO_ATTENTION_SOFTMAX_CUH

#include "attention.cuh"

/* Takes keys after a query's out of its scores s, which begin with key; query is the row
 * of the fragment's first. */
template <int N> __device__ __forceinline__ void mask_future(float (&s)[N][4], int query, int key) {
	int row = query + threadIdx.x % 32 / 4, column = key + threadIdx.x % 4 * 2;
#pragma unroll
	for (int n = 0; n < N; n++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			if (column + 8 * n + i % 2 > row + i / 2 * 8) s[n][i] = -INFINITY;
}

/* The largest or, with the sum, the total of a quad's four values: of a row. */
__device__ __forceinline__ float quad_max(float x) {
	x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
	return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
	x += __shfl_xor_sync(0xffffffff, x, 1);
	return x + __shfl_xor_sync(0xffffffff, x, 2);
}

/* Replaces s by P and scales sum. Sets shrink to the factors for rescale. Half a fragment's
 * rows at a time. */
template <int N>
__device__ __forceinline__ void softmax(float (&s)[N][4], float (&shrink)[2], float (&largest)[2], float (&sum)[2],
	float scale2) {
#pragma unroll
	for (int half = 0; half < 2; half++) {
		int first = 2 * half;
		float top = -INFINITY;
#pragma unroll
		for (int n = 0; n < N; n++) top = fmaxf(top, fmaxf(s[n][first], s[n][first + 1]));
		top = fmaxf(largest[half], quad_max(top) * scale2);
		float total = 0;
		shrink[half] = exp2_flush(largest[half] - top);
#pragma unroll
		for (int n = 0; n < N; n++)
#pragma unroll
			for (int i = first; i < first + 2; i++) {
				s[n][i] = exp2_flush(fmaf(s[n][i], scale2, -top));
				total += s[n][i];
			}
		largest[half] = top;
		sum[half] = fmaf(sum[half], shrink[half], total);
	}
}

template <int C> __device__ __forceinline__ void rescale(float (&o)[C][4], const float (&shrink)[2]) {
#pragma unroll
	for (int n = 0; n < C; n++)
#pragma unroll
		for (int i = 0; i < 4; i++) o[n][i] *= shrink[i / 2];
}

#endif
