/* RMSNorm over rows of c channels, as layernorm.cu, without a mean: forward moves 2·n·c
 * elements, backward of the input 4·n·c, backward of the weights 2·n·c. */
#include "columns.cuh"
#include "norm.cuh"

namespace {

template <typename E, bool VECTOR>
__global__ void __launch_bounds__(ROW_THREADS, 2)
forward(E *out, float *rstd, const E *inp, const E *weight, int n, int c, float eps)
{
	const int N = width<E>;
	SHARED(float, scratch, [ROW_THREADS / 32]);
	int i = blockIdx.x * blockDim.y + threadIdx.y, end = i < n ? c : 0, step = span<E>::columns();
	const E *row = inp + static_cast<int64_t>(i) * c;
	pack<E> x[HELD];
	float squares = 0;
	for (span<E> s = {0}; s.from < c; s.from += step) {
		s.template fetch<VECTOR>(x, row, end);
#pragma unroll
		for (int k = 0; k < HELD * N; k++)
			squares += x[k / N][k % N] * x[k / N][k % N];
	}
	float r = rsqrtf(row_reduce(squares, plus(), scratch) / c + eps);
	for (span<E> s = {0}; s.from < c; s.from += step) {
		if (step < c) s.template fetch<VECTOR>(x, row, end);
#pragma unroll
		for (int k = 0; k < HELD; k++) {
			pack<E> w = read<VECTOR, N>(weight, s.at(k), end);
			float y[N];
#pragma unroll
			for (int j = 0; j < N; j++)
				y[j] = x[k][j] * r * w[j];
			write<VECTOR>(out + static_cast<int64_t>(i) * c, s.at(k), end, pack<E>::of(y));
		}
	}
	if (threadIdx.x == 0 && i < n) rstd[i] = r;
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
};

/* dinp may be add: a thread reads what it then writes. */
template <typename E, bool VECTOR>
__global__ void __launch_bounds__(ROW_THREADS, 2)
backward(E *dinp, const E *add, const E *dout, const E *inp, const float *rstd, const E *weight, int n, int c)
{
	const int N = width<E>;
	SHARED(float, scratch, [ROW_THREADS / 32]);
	int i = blockIdx.x * blockDim.y + threadIdx.y, end = i < n ? c : 0, step = span<E>::columns();
	int64_t row = static_cast<int64_t>(i) * c;
	float r = i < n ? rstd[i] : 0, gx = 0;
	gradients<E> held;
	for (span<E> s = {0}; s.from < c; s.from += step) {
		held.template fetch<VECTOR>(s, dout + row, inp + row, weight, end);
#pragma unroll
		for (int k = 0; k < HELD * N; k++)
			gx += held.g(k / N, k % N) * (held.inp[k / N][k % N] * r);
	}
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
				y[j] = sum[k][j] + r * (held.g(k, j) - held.inp[k][j] * r * gx);
			write<VECTOR>(dinp + row, s.at(k), end, pack<E>::of(y));
		}
	}
}

/* The terms of a row in dweight. */
template <typename E, bool VECTOR> struct weight_gradient {
	static const int N = width<E>;
	const E *dout, *inp;
	const float *rstd;

	__device__ __forceinline__ void add(float (&sum)[1][N], int row, int at, int c) const
	{
		int64_t first = static_cast<int64_t>(row) * c;
		pack<E> dy = read<VECTOR, N>(dout + first, at, c), x = read<VECTOR, N>(inp + first, at, c);
		float r = rstd[row];
#pragma unroll
		for (int j = 0; j < N; j++)
			sum[0][j] += dy[j] * (x[j] * r);
	}
};

template <typename E>
int32_t run_forward(void *stream, void *out, float *rstd, const void *inp, const void *weight, int n, int c, float eps)
{
	auto kernel = rows_aligned<E>(c, out, inp, weight) ? forward<E, true> : forward<E, false>;
	dim3 threads = row_threads<E>(c);
	LAUNCH(kernel, parts(n, threads.y), threads, 0, stream, static_cast<E *>(out), rstd, static_cast<const E *>(inp),
		static_cast<const E *>(weight), n, c, eps);
	return launched();
}

template <typename E>
int32_t run_backward(void *stream, void *dinp, const void *add, const void *dout, const void *inp, const float *rstd,
	const void *weight, int n, int c)
{
	auto kernel = rows_aligned<E>(c, dinp, add, dout, inp, weight) ? backward<E, true> : backward<E, false>;
	dim3 threads = row_threads<E>(c);
	LAUNCH(kernel, parts(n, threads.y), threads, 0, stream, static_cast<E *>(dinp), static_cast<const E *>(add),
		static_cast<const E *>(dout), static_cast<const E *>(inp), rstd, static_cast<const E *>(weight), n, c);
	return launched();
}

template <typename E>
int32_t run_weight(dynmo_cuda *k, void *stream, float *dweight, const void *dout, const void *inp, const float *rstd,
	int n, int c)
{
	void *work;
	if (int32_t status = workspace(k, column_sums_bytes(n, c), &work)) return status;
	column_places<1> place = {{dweight}, static_cast<float *>(work)};
	const E *dy = static_cast<const E *>(dout), *x = static_cast<const E *>(inp);
	if (rows_aligned<E>(c, dy, x)) return add_columns<E>(stream, place, weight_gradient<E, true>{dy, x, rstd}, n, c);
	return add_columns<E>(stream, place, weight_gradient<E, false>{dy, x, rstd}, n, c);
}

} // namespace

int32_t dynmo_cuda_rmsnorm_forward(dynmo_cuda *k, void *stream, void *out, float *rstd, const void *inp,
	const void *weight, int32_t n, int32_t c, double eps)
{
	if (n == 0 || c == 0) return 0;
	return BY_TYPE(k, run_forward, stream, out, rstd, inp, weight, n, c, static_cast<float>(eps));
}

int32_t dynmo_cuda_rmsnorm_backward_input(dynmo_cuda *k, void *stream, void *dinp, const void *add, const void *dout,
	const void *inp, const float *rstd, const void *weight, int32_t n, int32_t c)
{
	if (n == 0 || c == 0) return 0;
	return BY_TYPE(k, run_backward, stream, dinp, add, dout, inp, rstd, weight, n, c);
}

int32_t dynmo_cuda_rmsnorm_backward_weight(dynmo_cuda *k, void *stream, float *dweight, const void *dout,
	const void *inp, const float *rstd, int32_t n, int32_t c)
{
	return BY_TYPE(k, run_weight, k, stream, dweight, dout, inp, rstd, n, c);
}
