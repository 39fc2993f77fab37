/* LayerNorm over rows of c channels, and RMSNorm, which has no mean and no bias.
 *
 * The three calls are bound by memory: forward moves 2·n·c elements, backward of
 * the input 4·n·c, backward of the weights 2·n·c. A row belongs to one warp, or
 * to up to sixteen when it is long; each thread holds HELD packs of it in
 * registers, so that it is read once. Only rows longer than sixteen warps hold
 * (8192 channels of bf16) are read again for each pass. The variance is that of
 * the differences from the mean. */
#include "columns.cuh"
#include "reduce.cuh"

namespace {

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
template <typename E> dim3 row_threads(int c)
{
	int threads = 32;
	while (threads < ROW_THREADS && threads * HELD * width<E> < c)
		threads *= 2;
	return dim3(threads, threads < 128 ? 128 / threads : 1);
}

/* CENTRED: LayerNorm. */
template <typename E, bool VECTOR, bool CENTRED>
__global__ void __launch_bounds__(ROW_THREADS, 2)
forward(E *out, float *mean, float *rstd, const E *inp, const E *weight, const E *bias, int n, int c, float eps)
{
	const int N = width<E>;
	SHARED(float, scratch, [ROW_THREADS / 32]);
	int i = blockIdx.x * blockDim.y + threadIdx.y, end = i < n ? c : 0, step = span<E>::columns();
	const E *row = inp + static_cast<int64_t>(i) * c;
	pack<E> x[HELD];
	float m = 0, squares = 0;
	if constexpr (CENTRED) {
		float sum = 0;
		for (span<E> s = {0}; s.from < c; s.from += step) {
			s.template fetch<VECTOR>(x, row, end);
#pragma unroll
			for (int k = 0; k < HELD * N; k++)
				sum += x[k / N][k % N];
		}
		m = row_reduce(sum, plus(), scratch) / c;
	}
	for (span<E> s = {0}; s.from < c; s.from += step) {
		if (!CENTRED || step < c) s.template fetch<VECTOR>(x, row, end);
#pragma unroll
		for (int k = 0; k < HELD * N; k++) {
			float d = x[k / N][k % N] - m;
			if (!CENTRED || s.at(k / N) + k % N < c) squares += d * d;
		}
	}
	float r = rsqrtf(row_reduce(squares, plus(), scratch) / c + eps);
	for (span<E> s = {0}; s.from < c; s.from += step) {
		if (step < c) s.template fetch<VECTOR>(x, row, end);
#pragma unroll
		for (int k = 0; k < HELD; k++) {
			pack<E> w = read<VECTOR, N>(weight, s.at(k), end), b;
			if constexpr (CENTRED) b = read<VECTOR, N>(bias, s.at(k), end);
			float y[N];
#pragma unroll
			for (int j = 0; j < N; j++)
				y[j] = CENTRED ? (x[k][j] - m) * r * w[j] + b[j] : x[k][j] * r * w[j];
			write<VECTOR>(out + static_cast<int64_t>(i) * c, s.at(k), end, pack<E>::of(y));
		}
	}
	if (threadIdx.x == 0 && i < n) {
		if constexpr (CENTRED) mean[i] = m;
		rstd[i] = r;
	}
}

/* A thread's part of a row of gradients. */
template <typename E> struct gradients {
	pack<E> dout[HELD], inp[HELD], weight[HELD];

	template <bool VECTOR>
	__device__ __forceinline__ void fetch(span<E> s, const E *dy, const E *x, const E *w, int end)
	{
		s.template fetch<VECTOR>(dout, dy, end);
		s.template fetch<VECTOR>(inp, x, end);
		s.template fetch<VECTOR>(weight, w, end);
	}
	__device__ __forceinline__ float g(int k, int j) const { return dout[k][j] * weight[k][j]; }
	__device__ __forceinline__ float xhat(int k, int j, float mean, float rstd) const
	{
		return (inp[k][j] - mean) * rstd;
	}
};

/* dinp may be add: a thread reads an element of add before it writes the same one of dinp. */
template <typename E, bool VECTOR, bool CENTRED>
__global__ void __launch_bounds__(ROW_THREADS, 2) backward(E *dinp, const E *add, const E *dout, const E *inp,
	const float *mean, const float *rstd, const E *weight, int n, int c)
{
	const int N = width<E>;
	SHARED(float, scratch, [ROW_THREADS / 32]);
	int i = blockIdx.x * blockDim.y + threadIdx.y, end = i < n ? c : 0, step = span<E>::columns();
	int64_t row = static_cast<int64_t>(i) * c;
	float m = CENTRED && i < n ? mean[i] : 0, r = i < n ? rstd[i] : 0, g = 0, gx = 0;
	gradients<E> held;
	for (span<E> s = {0}; s.from < c; s.from += step) {
		held.template fetch<VECTOR>(s, dout + row, inp + row, weight, end);
#pragma unroll
		for (int k = 0; k < HELD * N; k++) {
			if constexpr (CENTRED) g += held.g(k / N, k % N);
			gx += held.g(k / N, k % N) * held.xhat(k / N, k % N, m, r);
		}
	}
	if constexpr (CENTRED) g = row_reduce(g, plus(), scratch) / c;
	gx = row_reduce(gx, plus(), scratch) / c;
	for (span<E> s = {0}; s.from < c; s.from += step) {
		pack<E> sum[HELD];
		s.template fetch<VECTOR>(sum, add + row, end);
		if (step < c) held.template fetch<VECTOR>(s, dout + row, inp + row, weight, end);
#pragma unroll
		for (int k = 0; k < HELD; k++) {
			float y[N];
#pragma unroll
			for (int j = 0; j < N; j++)
				y[j] = sum[k][j] + r * (held.g(k, j) - g - held.xhat(k, j, m, r) * gx);
			write<VECTOR>(dinp + row, s.at(k), end, pack<E>::of(y));
		}
	}
}

/* The terms of a row in dweight and, of LayerNorm, in dbias. */
template <typename E, bool VECTOR, int SUMS> struct weight_gradient {
	static const int N = width<E>;
	const E *dout, *inp;
	const float *mean, *rstd;

	__device__ __forceinline__ void add(float (&sum)[SUMS][N], int row, int at, int c) const
	{
		int64_t first = static_cast<int64_t>(row) * c;
		pack<E> dy = read<VECTOR, N>(dout + first, at, c), x = read<VECTOR, N>(inp + first, at, c);
		float m = SUMS == 2 ? mean[row] : 0, r = rstd[row];
#pragma unroll
		for (int j = 0; j < N; j++) {
			sum[0][j] += dy[j] * ((x[j] - m) * r);
			if constexpr (SUMS == 2) sum[1][j] += dy[j];
		}
	}
};

template <typename E>
int32_t run_forward(void *stream, void *out, float *mean, float *rstd, const void *inp, const void *weight,
	const void *bias, int n, int c, float eps)
{
	bool vector = rows_aligned<E>(c, out, inp, weight, bias);
	auto centred = vector ? forward<E, true, true> : forward<E, false, true>;
	auto kernel = mean ? centred : vector ? forward<E, true, false> : forward<E, false, false>;
	dim3 threads = row_threads<E>(c);
	LAUNCH(kernel, parts(n, threads.y), threads, 0, stream, static_cast<E *>(out), mean, rstd,
		static_cast<const E *>(inp), static_cast<const E *>(weight), static_cast<const E *>(bias), n, c, eps);
	return launched();
}

template <typename E>
int32_t run_backward(void *stream, void *dinp, const void *add, const void *dout, const void *inp, const float *mean,
	const float *rstd, const void *weight, int n, int c)
{
	bool vector = rows_aligned<E>(c, dinp, add, dout, inp, weight);
	auto centred = vector ? backward<E, true, true> : backward<E, false, true>;
	auto kernel = mean ? centred : vector ? backward<E, true, false> : backward<E, false, false>;
	dim3 threads = row_threads<E>(c);
	LAUNCH(kernel, parts(n, threads.y), threads, 0, stream, static_cast<E *>(dinp), static_cast<const E *>(add),
		static_cast<const E *>(dout), static_cast<const E *>(inp), mean, rstd, static_cast<const E *>(weight), n, c);
	return launched();
}

template <typename E, int SUMS>
int32_t run_sums(dynmo_cuda *k, void *stream, column_places<SUMS> place, const E *dout, const E *inp, const float *mean,
	const float *rstd, int n, int c)
{
	void *work;
	if (int32_t status = workspace(k, column_sums_bytes(n, c, SUMS), &work)) return status;
	place.partial = static_cast<float *>(work);
	if (rows_aligned<E>(c, dout, inp))
		return add_columns<E>(stream, place, weight_gradient<E, true, SUMS>{dout, inp, mean, rstd}, n, c);
	return add_columns<E>(stream, place, weight_gradient<E, false, SUMS>{dout, inp, mean, rstd}, n, c);
}

template <typename E>
int32_t run_weight(dynmo_cuda *k, void *stream, float *dweight, float *dbias, const void *dout, const void *inp,
	const float *mean, const float *rstd, int n, int c)
{
	const E *dy = static_cast<const E *>(dout), *x = static_cast<const E *>(inp);
	if (mean) return run_sums<E, 2>(k, stream, {{dweight, dbias}, nullptr}, dy, x, mean, rstd, n, c);
	return run_sums<E, 1>(k, stream, {{dweight}, nullptr}, dy, x, mean, rstd, n, c);
}

} // namespace

int32_t dynmo_cuda_norm_forward(dynmo_cuda *k, void *stream, void *out, float *mean, float *rstd, const void *inp,
	const void *weight, const void *bias, int32_t n, int32_t c, double eps)
{
	if (n == 0 || c == 0) return 0;
	return BY_TYPE(k, run_forward, stream, out, mean, rstd, inp, weight, bias, n, c, static_cast<float>(eps));
}

int32_t dynmo_cuda_norm_backward_input(dynmo_cuda *k, void *stream, void *dinp, const void *add, const void *dout,
	const void *inp, const float *mean, const float *rstd, const void *weight, int32_t n, int32_t c)
{
	if (n == 0 || c == 0) return 0;
	return BY_TYPE(k, run_backward, stream, dinp, add, dout, inp, mean, rstd, weight, n, c);
}

int32_t dynmo_cuda_norm_backward_weight(dynmo_cuda *k, void *stream, float *dweight, float *dbias,
	const void *dout, const void *inp, const float *mean, const float *rstd, int32_t n, int32_t c)
{
	return BY_TYPE(k, run_weight, k, stream, dweight, dbias, dout, inp, mean, rstd, n, c);
}
