/* Some rows of a table, each named once: gathered, scattered, and the gradient of their
 * factors. Memory is the bound: gather_rows moves 2·n·c elements, scatter_rows and
 * gate_gradient move 3·n·c. A warp has a row, or a tile of 32 packs of its columns. */
#include "reduce.cuh"
#include "rows.cuh"

namespace {

template <typename E, bool VECTOR>
__global__ void __launch_bounds__(32 * WARPS)
gather(E *out, const E *inp, const int32_t *rows, const float *factor, int n, int c)
{
	const int N = width<E>;
	int i = warp_row(), at = tile_column<E>();
	if (i >= n || at >= c) return;
	pack<E> x = read<VECTOR, N>(inp + static_cast<int64_t>(rows[i]) * c, at, c);
	if (factor) {
		float result[N];
#pragma unroll
		for (int j = 0; j < N; j++)
			result[j] = factor[i] * x[j];
		x = pack<E>::of(result);
	}
	write<VECTOR>(out + static_cast<int64_t>(i) * c, at, c, x);
}

template <typename E, bool VECTOR>
__global__ void __launch_bounds__(32 * WARPS)
scatter(E *out, const E *add, const int32_t *rows, const float *keep, const float *factor, int n, int c)
{
	const int N = width<E>;
	int i = warp_row(), at = tile_column<E>();
	if (i >= n || at >= c) return;
	E *row = out + static_cast<int64_t>(rows[i]) * c;
	float times = factor ? factor[i] : 1;
	pack<E> old = read<VECTOR, N>(row, at, c), x = read<VECTOR, N>(add + static_cast<int64_t>(i) * c, at, c);
	float result[N];
#pragma unroll
	for (int j = 0; j < N; j++)
		result[j] = keep[i] * old[j] + times * x[j];
	write<VECTOR>(row, at, c, pack<E>::of(result));
}

template <typename E, bool VECTOR>
__global__ void __launch_bounds__(32 * WARPS)
gate(E *dlogits, const E *dout, const E *a, const E *b, const int32_t *rows, const float *factor, int n, int c)
{
	const int N = width<E>;
	int i = warp_row();
	if (i >= n) return; /* a whole warp */
	int64_t row = static_cast<int64_t>(i) * c;
	float sum = 0;
#pragma unroll 2
	for (int at = threadIdx.x * N; at < c; at += 32 * N) {
		pack<E> dy = read<VECTOR, N>(dout + row, at, c), x = read<VECTOR, N>(a + row, at, c), y = read<VECTOR, N>(b + row, at, c);
#pragma unroll
		for (int j = 0; j < N; j++)
			sum += dy[j] * (x[j] - y[j]);
	}
	sum = warp_reduce(sum, plus());
	if (threadIdx.x == 0) dlogits[rows[i]] = narrow<E>(wide(dlogits[rows[i]]) + factor[i] * sum);
}

template <typename E>
int32_t run_gather(void *stream, void *out, const void *inp, const int32_t *rows, const float *factor, int n, int c)
{
	auto kernel = rows_aligned<E>(c, out, inp) ? gather<E, true> : gather<E, false>;
	LAUNCH(kernel, row_tiles<E>(n, c), dim3(32, WARPS), 0, stream, static_cast<E *>(out), static_cast<const E *>(inp),
		rows, factor, n, c);
	return launched();
}

template <typename E>
int32_t run_scatter(void *stream, void *out, const void *add, const int32_t *rows, const float *keep,
	const float *factor, int n, int c)
{
	auto kernel = rows_aligned<E>(c, out, add) ? scatter<E, true> : scatter<E, false>;
	LAUNCH(kernel, row_tiles<E>(n, c), dim3(32, WARPS), 0, stream, static_cast<E *>(out), static_cast<const E *>(add),
		rows, keep, factor, n, c);
	return launched();
}

template <typename E>
int32_t run_gate(void *stream, void *dlogits, const void *dout, const void *a, const void *b, const int32_t *rows,
	const float *factor, int n, int c)
{
	auto kernel = rows_aligned<E>(c, dout, a, b) ? gate<E, true> : gate<E, false>;
	LAUNCH(kernel, dim3(parts(n, WARPS)), dim3(32, WARPS), 0, stream, static_cast<E *>(dlogits),
		static_cast<const E *>(dout), static_cast<const E *>(a), static_cast<const E *>(b), rows, factor, n, c);
	return launched();
}

} // namespace

int32_t dynmo_cuda_gather_rows(dynmo_cuda *k, void *stream, void *out, const void *inp, const int32_t *rows,
	const float *factor, int32_t n, int32_t c)
{
	if (n == 0 || c == 0) return 0;
	return BY_TYPE(k, run_gather, stream, out, inp, rows, factor, n, c);
}

int32_t dynmo_cuda_scatter_rows(dynmo_cuda *k, void *stream, void *out, const void *add, const int32_t *rows,
	const float *keep, const float *factor, int32_t n, int32_t c)
{
	if (n == 0 || c == 0) return 0;
	return BY_TYPE(k, run_scatter, stream, out, add, rows, keep, factor, n, c);
}

int32_t dynmo_cuda_gate_gradient(dynmo_cuda *k, void *stream, void *dlogits, const void *dout, const void *a,
	const void *b, const int32_t *rows, const float *factor, int32_t n, int32_t c)
{
	if (n == 0) return 0;
	return BY_TYPE(k, run_gate, stream, dlogits, dout, a, b, rows, factor, n, c);
}
