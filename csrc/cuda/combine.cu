/* Sums of rows of a table, as mixtures of experts have them, and the gradient of their
 * factors. Bound by memory: combine moves (each + 1)·n·c elements, with an addend one n·c more. */
#include "reduce.cuh"
#include "rows.cuh"

namespace {

/* The first row begins the sum, so that one row alone keeps its bits. */
template <typename E, bool VECTOR>
__global__ void __launch_bounds__(32 * WARPS)
combine(E *out, const E *inp, const int32_t *rows, const float *factor, const E *add, int n, int each, int c)
{
	const int N = width<E>;
	int i = warp_row(), at = tile_column<E>();
	if (i >= n || at >= c) return;
	float sum[N] = {};
	bool empty = true;
	const int32_t *from = rows + static_cast<int64_t>(i) * each;
	const float *by = factor ? factor + static_cast<int64_t>(i) * each : nullptr;
#pragma unroll 1
	for (int k = 0; k < each; k++) {
		if (from[k] < 0) continue;
		float times = by ? by[k] : 1;
		pack<E> x = read<VECTOR, N>(inp + static_cast<int64_t>(from[k]) * c, at, c);
#pragma unroll
		for (int j = 0; j < N; j++)
			sum[j] = empty ? times * x[j] : sum[j] + times * x[j];
		empty = false;
	}
	if (add) {
		pack<E> x = read<VECTOR, N>(add + static_cast<int64_t>(i) * c, at, c);
#pragma unroll
		for (int j = 0; j < N; j++)
			sum[j] += x[j];
	}
	write<VECTOR>(out + static_cast<int64_t>(i) * c, at, c, pack<E>::of(sum));
}

/* A warp has one factor. */
template <typename E, bool VECTOR>
__global__ void __launch_bounds__(32 * WARPS)
factors(float *dfactor, const E *dout, const E *inp, const int32_t *rows, int all, int each, int c)
{
	const int N = width<E>;
	int k = warp_row();
	if (k >= all) return; /* a whole warp */
	const E *dy = dout + static_cast<int64_t>(k / each) * c, *x = inp + static_cast<int64_t>(rows[k]) * c;
	float sum = 0;
#pragma unroll 2
	for (int at = rows[k] < 0 ? c : threadIdx.x * N; at < c; at += 32 * N) {
		pack<E> left = read<VECTOR, N>(dy, at, c), right = read<VECTOR, N>(x, at, c);
#pragma unroll
		for (int j = 0; j < N; j++)
			sum += left[j] * right[j];
	}
	sum = warp_reduce(sum, plus());
	if (threadIdx.x == 0) dfactor[k] = sum;
}

template <typename E>
int32_t run_combine(void *stream, void *out, const void *inp, const int32_t *rows, const float *factor, const void *add,
	int n, int each, int c)
{
	auto kernel = rows_aligned<E>(c, out, inp, add) ? combine<E, true> : combine<E, false>;
	LAUNCH(kernel, row_tiles<E>(n, c), dim3(32, WARPS), 0, stream, static_cast<E *>(out), static_cast<const E *>(inp),
		rows, factor, static_cast<const E *>(add), n, each, c);
	return launched();
}

template <typename E>
int32_t run_factors(void *stream, float *dfactor, const void *dout, const void *inp, const int32_t *rows, int all,
	int each, int c)
{
	auto kernel = rows_aligned<E>(c, dout, inp) ? factors<E, true> : factors<E, false>;
	LAUNCH(kernel, dim3(parts(all, WARPS)), dim3(32, WARPS), 0, stream, dfactor, static_cast<const E *>(dout),
		static_cast<const E *>(inp), rows, all, each, c);
	return launched();
}

} // namespace

int32_t dynmo_cuda_combine_rows(dynmo_cuda *k, void *stream, void *out, const void *inp, const int32_t *rows,
	const float *factor, const void *add, int32_t n, int32_t each, int32_t c)
{
	if (n == 0 || c == 0) return 0;
	return BY_TYPE(k, run_combine, stream, out, inp, rows, factor, add, n, each, c);
}

int32_t dynmo_cuda_combine_gradient(dynmo_cuda *k, void *stream, float *dfactor, const void *dout, const void *inp,
	const int32_t *rows, int32_t n, int32_t each, int32_t c)
{
	if (n == 0 || each == 0) return 0;
	return BY_TYPE(k, run_factors, stream, dfactor, dout, inp, rows, n * each, each, c);
}
