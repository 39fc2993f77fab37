/* The softmax of scores, tile by tile of keys; attention_forward.cu has the equations. Scores
 * lie in the fragments of tensor cores (mma.cuh's D): a lane has rows g and g+8 of 16. */
#ifndef DYNMO_ATTENTION_SOFTMAX_CUH
#define DYNMO_ATTENTION_SOFTMAX_CUH

#include "attention.cuh"

/* Sets the scores s of keys after their query to -infinity. key is the first column of s,
 * query its first row. */
template <int N> __device__ __forceinline__ void mask_future(float (&s)[N][4], int query, int key) {
	int row = query + threadIdx.x % 32 / 4, column = key + threadIdx.x % 4 * 2;
#pragma unroll
	for (int n = 0; n < N; n++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			if (column + 8 * n + i % 2 > row + i / 2 * 8) s[n][i] = -INFINITY;
}

/* quad_max returns the largest of a quad's four values, quad_sum their sum: those of a row. */
__device__ __forceinline__ float quad_max(float x) {
	x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
	return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
	x += __shfl_xor_sync(0xffffffff, x, 1);
	return x + __shfl_xor_sync(0xffffffff, x, 2);
}

/* Replaces s by P, updates largest and sum, and sets shrink to the factors for rescale. It
 * handles half a fragment's rows at a time. */
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
