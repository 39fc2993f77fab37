/* Sums of fixed-point numbers in units of 2^-50, whose bits do not depend on the order in which
 * they are added. A thread has one element; bound by memory: accumulate_fixed moves 20·n bytes,
 * add_fixed 24·n, round_fixed 12·n. */
#include "pack.cuh"

namespace {

const int THREADS = 256;
const float UNITS = 1125899906842624.0f; /* 2^50 */
const unsigned END = 0x46000000;         /* the bits of 2^13, behind the numbers of fixed point */
const int64_t MOST = 0x7fffffffffffffff;

__device__ __forceinline__ void raise_bound(int64_t *bound, int64_t by) { *bound = by > MOST - *bound ? MOST : *bound + by; }

/* Leaves the largest magnitude of all in word, which was 0. */
__global__ void __launch_bounds__(THREADS) accumulate(int64_t *sum, int *word, const float *x, int64_t n)
{
	int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
	unsigned magnitude = 0;
	if (i < n) {
		magnitude = __float_as_uint(x[i]) & 0x7fffffff;
		if (magnitude < END) sum[i] += static_cast<int64_t>(rintf(x[i] * UNITS));
	}
#pragma unroll
	for (int bits = 16; bits > 0; bits /= 2) {
		unsigned other = __shfl_xor_sync(0xffffffff, magnitude, bits);
		magnitude = other > magnitude ? other : magnitude;
	}
	if (threadIdx.x % 32 == 0) atomicMax(word, static_cast<int>(magnitude));
}

__global__ void bound(int64_t *sum, int *word)
{
	unsigned magnitude = static_cast<unsigned>(*word);
	raise_bound(sum, magnitude < END ? static_cast<int64_t>(ceilf(__uint_as_float(magnitude) * UNITS)) : MOST);
	*word = 0;
}

__global__ void __launch_bounds__(THREADS) add(int64_t *sum, const int64_t *other, int64_t n)
{
	int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
	if (i < n) sum[i] = static_cast<int64_t>(static_cast<uint64_t>(sum[i]) + static_cast<uint64_t>(other[i]));
	if (i == n) raise_bound(sum + n, other[n]);
}

__global__ void __launch_bounds__(THREADS) rounded(float *out, const int64_t *sum, int64_t n)
{
	int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
	if (i < n) out[i] = sum[n] == MOST ? __uint_as_float(0x7fc00000) : static_cast<float>(sum[i]) / UNITS;
}

} // namespace

int32_t dynmo_cuda_accumulate_fixed(dynmo_cuda *, void *stream, int64_t *sum, const float *x, int64_t n)
{
	if (n == 0) return 0;
	int *word = reinterpret_cast<int *>(sum + n + 1);
	LAUNCH(accumulate, parts(n, THREADS), THREADS, 0, stream, sum, word, x, n);
	LAUNCH(bound, 1, 1, 0, stream, sum + n, word);
	return launched();
}

int32_t dynmo_cuda_add_fixed(dynmo_cuda *, void *stream, int64_t *sum, const int64_t *other, int64_t n)
{
	LAUNCH(add, parts(n + 1, THREADS), THREADS, 0, stream, sum, other, n);
	return launched();
}

int32_t dynmo_cuda_round_fixed(dynmo_cuda *, void *stream, float *out, const int64_t *sum, int64_t n)
{
	if (n == 0) return 0;
	LAUNCH(rounded, parts(n, THREADS), THREADS, 0, stream, out, sum, n);
	return launched();
}
