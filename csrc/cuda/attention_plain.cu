/* Attention for every element type and head size, in float, without tensor cores.
 * As in attention_backward.cu a block owns 64 rows of a head and goes over tiles of
 * 64 columns of the scores; forward rows are queries. Operands pass through shared
 * memory in slices of 64 rows x 32 channels. Thread (y, x) of 16 x 16 has rows y+16i
 * and columns x+16j of a tile of scores: 8 shared loads of 16 bytes serve 64
 * multiply-adds, and padding keeps the lanes of a load in different banks. A block
 * makes up to 32·SLICES channels of its results; a larger head takes several blocks,
 * each of which makes the scores again. */
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

/* 8 elements from x on, of which count exist, as floats; the others are 0. */
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
template <typename E>
__device__ __forceinline__ void fill(slice &to, head_rows<const E> m, int first, int channel, attention_shape s,
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
template <typename E>
__device__ __forceinline__ void multiply(score_block &out, stage &shared, head_rows<const E> x, int row,
	head_rows<const E> u, int column, attention_shape s, bool vector) {
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
template <typename E, int SLICES>
__device__ __forceinline__ void accumulate(result_block<SLICES> &sum, stage &shared, const score_block &p,
	head_rows<const E> m, int first, int channel, attention_shape s, bool vector) {
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

template <typename E, int SLICES>
__device__ __forceinline__ void store(head_rows<E> m, const result_block<SLICES> &sum, const float (&factor)[SIDE],
	int first, int channel, attention_shape s) {
#pragma unroll
	for (int n = 0; n < SLICES; n++)
#pragma unroll
		for (int i = 0; i < SIDE; i++)
#pragma unroll
			for (int j = 0; j < 2; j++) {
				int row = first + my_row() + 16 * i, column = channel + n * WIDTH + my_column() + 16 * j;
				if (row < s.t && column < s.hs) m.row(row)[column] = narrow<E>(sum[n][i][j] * factor[i]);
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

/* One row's online softmax, as in attention_forward.cu: replaces its scores p by
 * probabilities to the largest so far, without the columns from end on. Returns
 * the factor by which the sums until now shrink. */
__device__ __forceinline__ float softmax(float (&p)[SIDE], float &largest, float &sum, int end, float scale2) {
	float top = -INFINITY, total = 0;
#pragma unroll
	for (int j = 0; j < SIDE; j++) {
		if (my_column() + 16 * j >= end) p[j] = -INFINITY;
		top = fmaxf(top, p[j]);
	}
	top = fmaxf(largest, row_max(top) * scale2);
#pragma unroll
	for (int j = 0; j < SIDE; j++) {
		p[j] = exp2_flush(fmaf(p[j], scale2, -top));
		total += p[j];
	}
	float shrink = exp2_flush(largest - top);
	sum = fmaf(sum, shrink, total);
	largest = top;
	return shrink;
}

/* Grid (b·nh, tiles of queries, parts of the head). */
template <typename E, int SLICES>
__global__ void __launch_bounds__(THREADS, SLICES == 1 ? 2 : 1)
	plain_forward(E *out, float *lse, const E *qkv, attention_shape s, bool vector) {
	SHARED(stage, shared, );
	attention_head head(s, blockIdx.x);
	s.t = head.t;
	int row = (gridDim.y - 1 - blockIdx.y) * ROWS, channel = blockIdx.z * SLICES * WIDTH;
	if (row >= s.t) return;
	head_rows<const E> q = rows_of(qkv, s, head, 3, 0), k = rows_of(qkv, s, head, 3, 1);
	head_rows<const E> v = rows_of(qkv, s, head, 3, 2);
	float o[SLICES][SIDE][2], largest[SIDE], sum[SIDE];
	clear<SLICES>(o);
#pragma unroll
	for (int i = 0; i < SIDE; i++) {
		largest[i] = -INFINITY;
		sum[i] = 0;
	}
	for (int column = 0; column <= row; column += ROWS) {
		score_block p;
		multiply(p, shared, q, row, k, column, s, vector);
#pragma unroll
		for (int i = 0; i < SIDE; i++) {
			int seen = row + my_row() + 16 * i + 1 - column;
			float shrink = softmax(p[i], largest[i], sum[i], seen, s.scale * LOG2_E);
#pragma unroll
			for (int n = 0; n < SLICES; n++)
#pragma unroll
				for (int j = 0; j < 2; j++) o[n][i][j] *= shrink;
		}
		accumulate<E, SLICES>(o, shared, p, v, column, channel, s, vector);
	}
	float inverse[SIDE];
#pragma unroll
	for (int i = 0; i < SIDE; i++) {
		float total = row_sum(sum[i]);
		int query = row + my_row() + 16 * i;
		inverse[i] = 1 / total;
		if (channel == 0 && my_column() == 0 && query < s.t)
			lse[head.sums(s) + query] = largest[i] * LN_2 + logf(total);
	}
	store<E, SLICES>(rows_of(out, s, head, 1, 0), o, inverse, row, channel, s);
}

/* Turns scores and y·wᵀ of a tile into p and ds, as in attention_backward.cu. */
template <bool KEYS>
__device__ __forceinline__ void probabilities(score_block &p, score_block &ds, const query_stats *stats, int row,
	int column, attention_shape s) {
#pragma unroll
	for (int i = 0; i < SIDE; i++)
#pragma unroll
		for (int j = 0; j < SIDE; j++) {
			int r = row + my_row() + 16 * i, c = column + my_column() + 16 * j;
			int query = KEYS ? c : r, key = KEYS ? r : c;
			bool seen = query < s.t && key <= query;
			query_stats of = seen ? stats[query] : query_stats{0, 0};
			p[i][j] = seen ? exp2_flush(fmaf(p[i][j], s.scale * LOG2_E, -of.lse2)) : 0;
			ds[i][j] = p[i][j] * (ds[i][j] - of.mean);
		}
}

/* Grid (b·nh, tiles of rows, parts of the head). */
template <typename E, int SLICES, bool KEYS>
__global__ void __launch_bounds__(THREADS) plain_backward(E *dqkv, const E *dout, const E *qkv,
	const query_stats *stats, attention_shape s, bool vector) {
	SHARED(stage, shared, );
	attention_head head(s, blockIdx.x);
	s.t = head.t;
	int block = KEYS ? blockIdx.y : gridDim.y - 1 - blockIdx.y;
	int row = block * ROWS, channel = blockIdx.z * SLICES * WIDTH;
	if (row >= s.t) return;
	head_rows<const E> q = rows_of(qkv, s, head, 3, 0), k = rows_of(qkv, s, head, 3, 1);
	head_rows<const E> v = rows_of(qkv, s, head, 3, 2), dy = rows_of(dout, s, head, 1, 0);
	head_rows<const E> u = KEYS ? q : k, w = KEYS ? dy : v;
	float du[SLICES][SIDE][2], dw[KEYS ? SLICES : 1][SIDE][2];
	clear<SLICES>(du);
	clear<KEYS ? SLICES : 1>(dw);
	for (int column = KEYS ? row : 0; column < (KEYS ? s.t : row + 1); column += ROWS) {
		score_block p, ds;
		multiply(p, shared, KEYS ? k : q, row, u, column, s, vector);
		multiply(ds, shared, KEYS ? v : dy, row, w, column, s, vector);
		probabilities<KEYS>(p, ds, stats + head.sums(s), row, column, s);
		accumulate<E, SLICES>(du, shared, ds, u, column, channel, s, vector);
		if constexpr (KEYS) accumulate<E, SLICES>(dw, shared, p, w, column, channel, s, vector);
	}
	store<E, SLICES>(rows_of(dqkv, s, head, 3, KEYS), du, {s.scale, s.scale, s.scale, s.scale}, row, channel, s);
	if constexpr (KEYS) store<E, SLICES>(rows_of(dqkv, s, head, 3, 2), dw, {1, 1, 1, 1}, row, channel, s);
}

dim3 grid_of(attention_shape s, int slices) {
	return dim3(s.b * s.nh, (s.t + ROWS - 1) / ROWS, (s.hs + slices * WIDTH - 1) / (slices * WIDTH));
}

template <typename E, int SLICES>
int32_t both(void *stream, E *dqkv, const E *dout, const E *qkv, const query_stats *stats, attention_shape s,
	bool vector) {
	dim3 grid = grid_of(s, SLICES);
	LAUNCH((plain_backward<E, SLICES, false>), grid, THREADS, 0, stream, dqkv, dout, qkv, stats, s, vector);
	int32_t status = launched();
	if (status != 0) return status;
	LAUNCH((plain_backward<E, SLICES, true>), grid, THREADS, 0, stream, dqkv, dout, qkv, stats, s, vector);
	return launched();
}

} // namespace

/* A block makes a head of 32 whole, or 128 channels of a larger one. */
template <typename E>
int32_t attention_plain_forward(void *stream, E *out, float *lse, const E *qkv, attention_shape s, bool vector) {
	if (s.hs <= WIDTH)
		LAUNCH((plain_forward<E, 1>), grid_of(s, 1), THREADS, 0, stream, out, lse, qkv, s, vector);
	else
		LAUNCH((plain_forward<E, 4>), grid_of(s, 4), THREADS, 0, stream, out, lse, qkv, s, vector);
	return launched();
}

template <typename E>
int32_t attention_plain_backward(void *stream, E *dqkv, const E *dout, const E *qkv, const query_stats *stats,
	attention_shape s, bool vector) {
	if (s.hs <= WIDTH) return both<E, 1>(stream, dqkv, dout, qkv, stats, s, vector);
	return both<E, 4>(stream, dqkv, dout, qkv, stats, s, vector);
}

template int32_t attention_plain_forward(void *, float *, float *, const float *, attention_shape, bool);
template int32_t attention_plain_forward(void *, bf16 *, float *, const bf16 *, attention_shape, bool);
template int32_t attention_plain_backward(void *, float *, const float *, const float *, const query_stats *,
	attention_shape, bool);
template int32_t attention_plain_backward(void *, bf16 *, const bf16 *, const bf16 *, const query_stats *,
	attention_shape, bool);
