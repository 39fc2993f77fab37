/* Masks, and the histograms of radix selection by magnitude.
 *
 * magnitude_histogram reads 4·n bytes, and a bit of the mask for each element.
 * Each warp counts in its own shared memory, by integer atomics: their order does
 * not matter. Blocks then add their counts to hist. mask writes the zeros only. */
#include "pack.cuh"

namespace {

const int THREADS = 256, WARPS = THREADS / 32;
const int N = 4; /* elements of a thread at a time; 64 of them share a word of the mask */
const int FLIGHT = 4; /* times that, loaded before the first is counted */
const int RESIDENT = 6; /* blocks of a histogram that a multiprocessor has registers for */

/* Bits of the mask for elements [at, at + N), none for those from n on. */
__device__ __forceinline__ unsigned kept_bits(const uint64_t *mask, int64_t at, int64_t n)
{
	if (at >= n) return 0;
	unsigned bits = mask ? static_cast<unsigned>(mask[at / 64] >> (at % 64)) & 15 : 15;
	return n - at < N ? bits & ((1u << (n - at)) - 1) : bits;
}

__global__ void __launch_bounds__(THREADS) mask_elements(float *x, const uint64_t *mask, int64_t n, bool vector)
{
	int64_t at = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * N;
	unsigned kept = kept_bits(mask, at, n);
	if (vector && kept == 0 && at + N <= n) {
		write<true>(x + at, 0, N, pack<float>());
		return;
	}
	for (int j = 0; j < N && at + j < n; j++)
		if (!(kept >> j & 1)) x[at + j] = 0;
}

/* Which elements count, and by which of their bits. */
struct selection {
	uint32_t prefix;
	int fixed;

	/* Counts the elements of p whose bit in kept is 1. */
	__device__ __forceinline__ void count(unsigned *counts, const pack<float> &p, unsigned kept) const
	{
#pragma unroll
		for (int j = 0; j < N; j++) {
			uint32_t bits = __float_as_uint(p[j]) & 0x7fffffff;
			bool matches = fixed == 0 || bits >> (32 - fixed) == prefix;
			if (matches && (kept >> j & 1)) atomicAdd(&counts[bits >> (24 - fixed) & 255], 1u);
		}
	}
};

/* Adds to hist, 256 counts, what kernel.go says. Blocks take turns through x. */
template <bool VECTOR>
__global__ void __launch_bounds__(THREADS, RESIDENT)
histogram(unsigned long long *hist, const float *x, const uint64_t *mask, int64_t n, selection s)
{
	SHARED(unsigned, counts, [WARPS][256]);
	for (int w = 0; w < WARPS; w++)
		counts[w][threadIdx.x] = 0;
	__syncthreads();
	unsigned *mine = counts[threadIdx.x / 32];
	int64_t at = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * N;
	int64_t step = static_cast<int64_t>(gridDim.x) * THREADS * N;
	for (; at + N <= n; at += FLIGHT * step) {
		pack<float> p[FLIGHT];
		unsigned kept[FLIGHT];
#pragma unroll
		for (int u = 0; u < FLIGHT; u++) {
			bool whole = at + u * step + N <= n;
			p[u] = read<VECTOR, N>(x + at + u * step, 0, whole ? N : 0);
			kept[u] = whole ? kept_bits(mask, at + u * step, n) : 0;
		}
#pragma unroll
		for (int u = 0; u < FLIGHT; u++)
			s.count(mine, p[u], kept[u]);
	}
	int64_t end = n / N * N;
	if (blockIdx.x == 0 && threadIdx.x == 0 && end < n)
		s.count(mine, read<false, N>(x + end, 0, static_cast<int>(n - end)), kept_bits(mask, end, n));
	__syncthreads();
	unsigned long long total = 0;
	for (int w = 0; w < WARPS; w++)
		total += counts[w][threadIdx.x];
	if (total > 0) atomicAdd(&hist[threadIdx.x], total);
}

} // namespace

int32_t dynmo_cuda_mask(dynmo_cuda *, void *stream, float *x, const uint64_t *mask, int64_t n)
{
	if (n == 0) return 0;
	LAUNCH(mask_elements, parts(n, THREADS * N), THREADS, 0, stream, x, mask, n, aligned(x));
	return launched();
}

int32_t dynmo_cuda_magnitude_histogram(dynmo_cuda *k, void *stream, int64_t *hist, const float *x, const uint64_t *mask,
	int64_t n, uint32_t prefix, int32_t fixed)
{
	if (n == 0) return 0;
	int64_t blocks = parts(n, THREADS * N), most = RESIDENT * k->processors;
	auto kernel = aligned(x) ? histogram<true> : histogram<false>;
	LAUNCH(kernel, blocks < most ? blocks : most, THREADS, 0, stream, reinterpret_cast<unsigned long long *>(hist), x,
		mask, n, selection{prefix, fixed});
	return launched();
}
