/* The tiles of attention without tensor cores, for every element type and head size.
 * A block owns 64 rows of a head and goes over tiles of 64 columns of the scores.
 * Operands pass through shared memory in slices of 64 rows x 32 channels. Thread (y, x)
 * of 16 x 16 has rows y+16i and columns x+16j of a tile of scores. 8 shared loads of 16
 * bytes serve 64 multiply-adds. Padding keeps the lanes of a load in different banks.
 * A block makes up to 32·SLICES channels of its results. A larger head takes several
 * blocks, and each block makes the scores again. */
#ifndef DYNMO_ATTENTION_PLAIN_CUH
#define DYNMO_ATTENTION_PLAIN_CUH

#include "attention.cuh"

namespace {

constexpr int ROWS = 64, WIDTH = 32, THREADS = 256, SIDE = 4;

typedef float4 slice[ROWS][WIDTH / 4 + 1]; /* a row is padded by 4 floats */
typedef float4 weights[ROWS][ROWS / 4 + 1];
typedef float score_block[SIDE][SIDE];
template <int SLICES> using result_block = float[SLICES][SIDE][2];

/* The shared memory of a block. */
struct stage {
	slice left, right;
	weights p;
};

__device__ __forceinline__ int my_row() { return threadIdx.x / 16; }
__device__ __forceinline__ int my_column() { return threadIdx.x % 16; }

/* Fills `to` with the first `count` of 8 elements from x on, as floats; the others are 0. */
template <typename E>
__device__ __forceinline__ void read8(float (&to)[8], const E *x, int count, bool vector) {
	struct __align__(16) chunk {
		E element[8];
	};
	if (vector && count >= 8) {
		chunk all = *reinterpret_cast<const chunk *>(x);
#pragma unroll
		for (int i = 0; i < 8; i++) to[i] = wide(all.element[i]);
	} else {
#pragma unroll
		for (int i = 0; i < 8; i++) to[i] = i < count ? wide(x[i]) : 0;
	}
}

/* Fills to with rows [first, first + 64) of m, channels [channel, channel + 32);
 * 0 where there are none. */
template <typename M>
__device__ __forceinline__ void fill(slice &to, M m, int first, int channel, attention_shape s,
	bool vector) {
	int row = threadIdx.x / 4, column = threadIdx.x % 4 * 8;
	bool inside = first + row < s.t && channel + column < s.hs;
	float x[8];
	read8(x, inside ? m.row(first + row) + channel + column : m.first, inside ? s.hs - channel - column : 0, vector);
	to[row][column / 4] = make_float4(x[0], x[1], x[2], x[3]);
	to[row][column / 4 + 1] = make_float4(x[4], x[5], x[6], x[7]);
}

__device__ __forceinline__ float dot4(float4 x, float4 y, float sum) {
	return fmaf(x.w, y.w, fmaf(x.z, y.z, fmaf(x.y, y.y, fmaf(x.x, y.x, sum))));
}

/* out = x·uᵀ of a tile, over all channels. */
template <typename M>
__device__ __forceinline__ void multiply(score_block &out, stage &shared, M x, int row, M u, int column, attention_shape s, bool vector) {
#pragma unroll
	for (int i = 0; i < SIDE; i++)
#pragma unroll
		for (int j = 0; j < SIDE; j++) out[i][j] = 0;
	for (int channel = 0; channel < s.hs; channel += WIDTH) {
		__syncthreads();
		fill(shared.left, x, row, channel, s, vector);
		fill(shared.right, u, column, channel, s, vector);
		__syncthreads();
#pragma unroll
		for (int k = 0; k < WIDTH / 4; k++) {
			float4 b[SIDE];
#pragma unroll
			for (int j = 0; j < SIDE; j++) b[j] = shared.right[my_column() + 16 * j][k];
#pragma unroll
			for (int i = 0; i < SIDE; i++) {
				float4 a = shared.left[my_row() + 16 * i][k];
#pragma unroll
				for (int j = 0; j < SIDE; j++) out[i][j] = dot4(a, b[j], out[i][j]);
			}
		}
	}
}

/* sum += p·slice: two columns of 32. */
__device__ __forceinline__ void accumulate_slice(float (&sum)[SIDE][2], const stage &shared) {
#pragma unroll 4
	for (int k = 0; k < ROWS / 4; k++) {
		float4 b[2];
#pragma unroll
		for (int j = 0; j < 2; j++) {
			const float *at = reinterpret_cast<const float *>(shared.right[4 * k]) + my_column() + 16 * j;
			constexpr int NEXT = WIDTH + 4;
			b[j] = make_float4(at[0], at[NEXT], at[2 * NEXT], at[3 * NEXT]);
		}
#pragma unroll
		for (int i = 0; i < SIDE; i++) {
			float4 a = shared.p[my_row() + 16 * i][k];
#pragma unroll
			for (int j = 0; j < 2; j++) sum[i][j] = dot4(a, b[j], sum[i][j]);
		}
	}
}

/* sum += p·m for rows [first, first + 64) of m, channels from channel on. */
template <int SLICES, typename M>
__device__ __forceinline__ void accumulate(result_block<SLICES> &sum, stage &shared, const score_block &p, M m, int first, int channel, attention_shape s, bool vector) {
	__syncthreads();
#pragma unroll
	for (int i = 0; i < SIDE; i++)
#pragma unroll
		for (int j = 0; j < SIDE; j++)
			reinterpret_cast<float *>(shared.p[my_row() + 16 * i])[my_column() + 16 * j] = p[i][j];
#pragma unroll
	for (int n = 0; n < SLICES; n++) {
		if (channel + n * WIDTH >= s.hs) continue;
		if (n > 0) __syncthreads();
		fill(shared.right, m, first, channel + n * WIDTH, s, vector);
		__syncthreads();
		accumulate_slice(sum[n], shared);
	}
}

template <int SLICES, typename M>
__device__ __forceinline__ void store(M m, const result_block<SLICES> &sum, const float (&factor)[SIDE],
	int first, int channel, attention_shape s) {
#pragma unroll
	for (int n = 0; n < SLICES; n++)
#pragma unroll
		for (int i = 0; i < SIDE; i++)
#pragma unroll
			for (int j = 0; j < 2; j++) {
				int row = first + my_row() + 16 * i, column = channel + n * WIDTH + my_column() + 16 * j;
				if (row < s.t && column < s.hs) m.row(row)[column] = narrow<typename M::element>(sum[n][i][j] * factor[i]);
			}
}

template <int SLICES> __device__ __forceinline__ void clear(result_block<SLICES> &sum) {
#pragma unroll
	for (int n = 0; n < SLICES; n++)
#pragma unroll
		for (int i = 0; i < SIDE; i++) sum[n][i][0] = sum[n][i][1] = 0;
}

/* The largest and the sum of the values of the 16 threads of a row. */
__device__ __forceinline__ float row_max(float x) {
#pragma unroll
	for (int across = 8; across > 0; across /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, across));
	return x;
}

__device__ __forceinline__ float row_sum(float x) {
#pragma unroll
	for (int across = 8; across > 0; across /= 2) x += __shfl_xor_sync(0xffffffff, x, across);
	return x;
}

/* One row's online softmax, as in attention_forward.cu. Replaces the row's scores p by
 * probabilities relative to the largest score so far. Columns that the row does not see
 * become 0; these may be all. Returns the factor by which the sums until now shrink. */
template <typename S>
__device__ __forceinline__ float softmax(float (&p)[SIDE], float &largest, float &sum, S sees, float scale2) {
	float top = -INFINITY, total = 0;
#pragma unroll
	for (int j = 0; j < SIDE; j++) {
		if (!sees(my_column() + 16 * j)) p[j] = -INFINITY;
		top = fmaxf(top, p[j]);
	}
	top = fmaxf(largest, row_max(top) * scale2);
	float shift = top == -INFINITY ? 0 : top;
#pragma unroll
	for (int j = 0; j < SIDE; j++) {
		p[j] = exp2_flush(fmaf(p[j], scale2, -shift));
		total += p[j];
	}
	float shrink = exp2_flush(largest - shift);
	sum = fmaf(sum, shrink, total);
	largest = top;
	return shrink;
}

/* A block for each head of b sequences, tile of its rows, and part of its channels. */
inline dim3 plain_grid(attention_shape s, int slices) {
	return dim3(s.b * s.nh, (s.t + ROWS - 1) / ROWS, (s.hs + slices * WIDTH - 1) / (slices * WIDTH));
}

} // namespace

#endif
