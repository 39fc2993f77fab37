/* Copies of keys and values for each head, and the sums of their gradients. */
#include "attention_grouped.cuh"

#include "pack.cuh"

namespace {

const int THREADS = 256;

/* An element of a row: its part (queries 0, keys 1, values 2), head and channel. */
struct place {
	int part, head, x;
	__device__ __forceinline__ place(int at, int c, int keys, int hs) {
		part = at < c ? 0 : 1 + (at - c) / keys;
		int inside = part == 0 ? at : (at - c) % keys;
		head = inside / hs;
		x = inside % hs;
	}
};

/* A thread has N channels: a pack, or one where heads are no whole packs. */
template <typename E, int N>
__global__ void __launch_bounds__(THREADS) spread(E *to, const E *qkv, attention_group g, size_t all) {
	size_t index = (static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x) * N;
	if (index >= all) return;
	size_t row = index / (3 * g.c);
	place p(index % (3 * g.c), g.c, g.c, g.hs);
	int at = p.part == 0 ? p.head * g.hs : g.c + (p.part - 1) * g.keys + p.head / g.share * g.hs;
	const E *from = qkv + row * (g.c + 2 * g.keys) + at + p.x;
	if constexpr (N == 1)
		to[index] = *from;
	else
		write<true>(to + index, 0, N, read<true, N>(from, 0, N));
}

template <typename E, int N>
__global__ void __launch_bounds__(THREADS) collect(E *dqkv, const E *from, attention_group g, size_t all) {
	size_t index = (static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x) * N;
	if (index >= all) return;
	int width = g.c + 2 * g.keys, copies = 1;
	place p(index % width, g.c, g.keys, g.hs);
	if (p.part > 0) copies = g.share;
	const E *first = from + index / width * 3 * g.c + p.part * g.c + p.head * copies * g.hs + p.x;
	if constexpr (N == 1) {
		float sum = wide(first[0]);
		for (int i = 1; i < copies; i++) sum += wide(first[i * g.hs]);
		dqkv[index] = narrow<E>(sum);
	} else {
		float sum[N];
		for (int i = 0; i < copies; i++) {
			pack<E, N> x = read<true, N>(first + i * g.hs, 0, N);
#pragma unroll
			for (int j = 0; j < N; j++) sum[j] = i == 0 ? x[j] : sum[j] + x[j];
		}
		write<true>(dqkv + index, 0, N, pack<E, N>::of(sum));
	}
}

} // namespace

template <typename E> int32_t attention_spread(void *stream, E *to, const E *qkv, size_t n, attention_group g) {
	const int N = width<E>;
	size_t all = n * 3 * g.c;
	if (rows_aligned<E>(g.hs, to, qkv))
		LAUNCH((spread<E, N>), dim3(parts(all / N, THREADS)), THREADS, 0, stream, to, qkv, g, all);
	else
		LAUNCH((spread<E, 1>), dim3(parts(all, THREADS)), THREADS, 0, stream, to, qkv, g, all);
	return launched();
}

template <typename E> int32_t attention_collect(void *stream, E *dqkv, const E *from, size_t n, attention_group g) {
	const int N = width<E>;
	size_t all = n * (g.c + 2 * g.keys);
	if (rows_aligned<E>(g.hs, dqkv, from))
		LAUNCH((collect<E, N>), dim3(parts(all / N, THREADS)), THREADS, 0, stream, dqkv, from, g, all);
	else
		LAUNCH((collect<E, 1>), dim3(parts(all, THREADS)), THREADS, 0, stream, dqkv, from, g, all);
	return launched();
}

template int32_t attention_spread(void *, float *, const float *, size_t, attention_group);
template int32_t attention_spread(void *, bf16 *, const bf16 *, size_t, attention_group);
template int32_t attention_collect(void *, float *, const float *, size_t, attention_group);
template int32_t attention_collect(void *, bf16 *, const bf16 *, size_t, attention_group);
