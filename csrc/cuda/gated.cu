/* Rows of LLaMA's blocks: gated MLPs, and rotary positions. Bound by memory:
 * swiglu_forward moves 3·n·c elements, swiglu_backward 5·n·c, rotary 2·n·heads·hs. */
#include "rows.cuh"

namespace {

__device__ __forceinline__ float logistic(float x) { return __fdividef(1, 1 + __expf(-x)); }

template <typename E, bool VECTOR>
__global__ void __launch_bounds__(32 * WARPS) swiglu(E *out, const E *gateup, int n, int c)
{
	const int N = width<E>;
	int i = warp_row(), at = tile_column<E>();
	if (i >= n || at >= c) return;
	const E *row = gateup + static_cast<int64_t>(i) * 2 * c;
	pack<E> gate = read<VECTOR, N>(row, at, c), up = read<VECTOR, N>(row + c, at, c);
	float y[N];
#pragma unroll
	for (int j = 0; j < N; j++)
		y[j] = gate[j] * logistic(gate[j]) * up[j];
	write<VECTOR>(out + static_cast<int64_t>(i) * c, at, c, pack<E>::of(y));
}

template <typename E, bool VECTOR>
__global__ void __launch_bounds__(32 * WARPS) swiglu_gradient(E *dgateup, const E *dout, const E *gateup, int n, int c)
{
	const int N = width<E>;
	int i = warp_row(), at = tile_column<E>();
	if (i >= n || at >= c) return;
	int64_t first = static_cast<int64_t>(i) * 2 * c;
	pack<E> gate = read<VECTOR, N>(gateup + first, at, c), up = read<VECTOR, N>(gateup + first + c, at, c);
	pack<E> dy = read<VECTOR, N>(dout + static_cast<int64_t>(i) * c, at, c);
	float dgate[N], dup[N];
#pragma unroll
	for (int j = 0; j < N; j++) {
		float s = logistic(gate[j]);
		dgate[j] = dy[j] * up[j] * (s + gate[j] * s * (1 - s));
		dup[j] = dy[j] * (gate[j] * s);
	}
	write<VECTOR>(dgateup + first, at, c, pack<E>::of(dgate));
	write<VECTOR>(dgateup + first + c, at, c, pack<E>::of(dup));
}

/* A thread turns a pack of pairs of a head, or one: channels x and x + hs/2. */
template <typename E, int N, bool VECTOR>
__global__ void __launch_bounds__(256)
turn(E *qkv, const int32_t *positions, const float *table, int64_t packs, int heads, int width, int hs, float sign)
{
	int64_t index = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
	if (index >= packs) return;
	int half = hs / 2, x = static_cast<int>(index % (half / N)) * N;
	int64_t i = index / (half / N) / heads;
	E *q = qkv + i * width + index / (half / N) % heads * hs + x;
	const float *angles = table + static_cast<int64_t>(positions[i]) * hs + x;
	if constexpr (N == 1) {
		float a = wide(q[0]), b = wide(q[half]), cos = angles[0], sin = sign * angles[half];
		q[0] = narrow<E>(a * cos - b * sin);
		q[half] = narrow<E>(b * cos + a * sin);
	} else {
		pack<E, N> a = read<VECTOR, N>(q, 0, N), b = read<VECTOR, N>(q, half, half + N);
		float first[N], second[N];
#pragma unroll
		for (int j = 0; j < N; j++) {
			float cos = angles[j], sin = sign * angles[half + j];
			first[j] = a[j] * cos - b[j] * sin;
			second[j] = b[j] * cos + a[j] * sin;
		}
		write<VECTOR>(q, 0, N, pack<E, N>::of(first));
		write<VECTOR>(q, half, half + N, pack<E, N>::of(second));
	}
}

template <typename E> int32_t run_swiglu(void *stream, void *out, const void *gateup, int n, int c)
{
	auto kernel = rows_aligned<E>(c, out, gateup) ? swiglu<E, true> : swiglu<E, false>;
	LAUNCH(kernel, row_tiles<E>(n, c), dim3(32, WARPS), 0, stream, static_cast<E *>(out), static_cast<const E *>(gateup),
		n, c);
	return launched();
}

template <typename E>
int32_t run_gradient(void *stream, void *dgateup, const void *dout, const void *gateup, int n, int c)
{
	auto kernel = rows_aligned<E>(c, dgateup, dout, gateup) ? swiglu_gradient<E, true> : swiglu_gradient<E, false>;
	LAUNCH(kernel, row_tiles<E>(n, c), dim3(32, WARPS), 0, stream, static_cast<E *>(dgateup),
		static_cast<const E *>(dout), static_cast<const E *>(gateup), n, c);
	return launched();
}

template <typename E>
int32_t run_turn(void *stream, void *qkv, const int32_t *positions, const float *table, int n, int heads, int width,
	int hs, int inverse)
{
	int64_t pairs = static_cast<int64_t>(n) * heads * (hs / 2);
	if (pairs == 0) return 0;
	const int N = ::width<E>;
	bool whole = hs % (2 * N) == 0;
	int64_t packs = whole ? pairs / N : pairs;
	auto kernel = !whole ? turn<E, 1, false> : rows_aligned<E>(width, qkv) ? turn<E, N, true> : turn<E, N, false>;
	LAUNCH(kernel, dim3(parts(packs, 256)), 256, 0, stream, static_cast<E *>(qkv), positions, table, packs, heads, width, hs,
		inverse ? -1.0f : 1.0f);
	return launched();
}

} // namespace

int32_t dynmo_cuda_swiglu_forward(dynmo_cuda *k, void *stream, void *out, const void *gateup, int32_t n, int32_t c)
{
	if (n == 0 || c == 0) return 0;
	return BY_TYPE(k, run_swiglu, stream, out, gateup, n, c);
}

int32_t dynmo_cuda_swiglu_backward(dynmo_cuda *k, void *stream, void *dgateup, const void *dout, const void *gateup,
	int32_t n, int32_t c)
{
	if (n == 0 || c == 0) return 0;
	return BY_TYPE(k, run_gradient, stream, dgateup, dout, gateup, n, c);
}

int32_t dynmo_cuda_rotary(dynmo_cuda *k, void *stream, void *qkv, const int32_t *positions, const float *table,
	int32_t n, int32_t heads, int32_t width, int32_t hs, int32_t inverse)
{
	return BY_TYPE(k, run_turn, stream, qkv, positions, table, n, heads, width, hs, inverse);
}
