/* Selects the elements of largest magnitude as a mask, and packs the values and places of kept
 * elements one behind the other. A warp has a chunk: 32 words of the mask, 2048 elements. A
 * place depends on the counts of the chunks before. One block sums these counts, in order. All
 * sums are of integers.
 *
 *   select_largest   reads 4·n bytes and the mask before, writes n/8; reads x twice where
 *                    some but not all of the ties stay, in one parameter of a model
 *   mask_ranks       reads the mask twice, writes n/16
 *   compact          reads the n elements and the mask, writes those that are kept
 *   compact_rows     reads the mask and the columns of entries, writes columns and rows */
#include "reduce.cuh"
#include "pack.cuh"

namespace {

const int THREADS = 512, WARPS = 8, CHUNK = 32; /* words of a warp's chunk, as many as it has lanes */

/* Word w of a mask of n bits, those from n on 0; all are 1 without a mask. */
__device__ __forceinline__ uint64_t word_of(const uint64_t *mask, int64_t w, int64_t n)
{
	uint64_t word = mask ? mask[w] : ~uint64_t(0);
	int64_t left = n - 64 * w;
	return left >= 64 ? word : left <= 0 ? 0 : word & ((uint64_t(1) << left) - 1);
}

/* The sum of x over the lanes before this one. */
__device__ __forceinline__ int lanes_before(int x, int lane)
{
	int sum = x;
#pragma unroll
	for (int apart = 1; apart < 32; apart *= 2) {
		int other = __shfl_up_sync(0xffffffff, sum, apart);
		if (lane >= apart) sum += other;
	}
	return sum - x;
}

/* counts[i] becomes the sum of those before i. One block of THREADS. */
__global__ void __launch_bounds__(THREADS) sum_before(int32_t *counts, int64_t n)
{
	SHARED(int, sums, [THREADS / 32]);
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	int64_t each = (n + THREADS - 1) / THREADS, first = threadIdx.x * each;
	int64_t end = first + each < n ? first + each : n;
	int mine = 0;
	for (int64_t i = first; i < end; i++)
		mine += counts[i];
	int before = lanes_before(mine, lane);
	if (lane == 31) sums[warp] = before + mine;
	__syncthreads();
	for (int w = 0; w < warp; w++)
		before += sums[w];
	for (int64_t i = first; i < end; i++) {
		int count = counts[i];
		counts[i] = before;
		before += count;
	}
}

/* Which elements of x a warp looks at, and how they compare with the threshold. */
struct selection {
	const float *x;
	const uint64_t *mask;
	int64_t n;
	uint32_t threshold;

	/* Sets the bits of word w's elements above the threshold, and of those at it. */
	__device__ __forceinline__ void look(int64_t w, int lane, uint64_t *above, uint64_t *at) const
	{
		unsigned halves[2][2];
#pragma unroll
		for (int half = 0; half < 2; half++) {
			int64_t i = 64 * w + 32 * half + lane;
			uint32_t bits = i < n ? __float_as_uint(x[i]) & 0x7fffffff : 0;
			halves[0][half] = __ballot_sync(0xffffffff, bits > threshold);
			halves[1][half] = __ballot_sync(0xffffffff, bits == threshold);
		}
		uint64_t counts = word_of(mask, w, n);
		*above = (halves[0][0] | uint64_t(halves[0][1]) << 32) & counts;
		*at = (halves[1][0] | uint64_t(halves[1][1]) << 32) & counts;
	}
};

/* Counts the elements at the threshold in each chunk. */
__global__ void __launch_bounds__(32 * WARPS) count_ties(int32_t *counts, selection s, int64_t words)
{
	int64_t chunk = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.y;
	int lane = threadIdx.x, count = 0;
	if (chunk * CHUNK >= words) return;
#pragma unroll 4
	for (int64_t w = chunk * CHUNK; w < min(words, chunk * CHUNK + CHUNK); w++) {
		uint64_t above, at;
		s.look(w, lane, &above, &at);
		count += __popcll(at);
	}
	if (lane == 0) counts[chunk] = count;
}

/* The lowest `count` of the bits that are 1. */
__device__ __forceinline__ uint64_t lowest(uint64_t bits, int count)
{
	uint64_t rest = bits;
	for (int i = 0; i < count; i++)
		rest &= rest - 1;
	return bits & ~rest;
}

/* before has the ties in the chunks before each; without it all of them stay, or none. */
__global__ void __launch_bounds__(32 * WARPS)
select(uint64_t *kept, selection s, int64_t words, const int32_t *before, int64_t ties)
{
	int64_t chunk = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.y;
	int lane = threadIdx.x;
	if (chunk * CHUNK >= words) return;
	int64_t left = before ? ties - before[chunk] : ties;
#pragma unroll 4
	for (int64_t w = chunk * CHUNK; w < min(words, chunk * CHUNK + CHUNK); w++) {
		uint64_t above, at;
		s.look(w, lane, &above, &at);
		int count = __popcll(at);
		if (lane == 0) kept[w] = above | (left >= count ? at : left > 0 ? lowest(at, static_cast<int>(left)) : 0);
		if (before) left -= count;
	}
}

/* Counts the bits of each chunk; with before, which has those in the chunks before each,
 * writes what is before each word instead, and before the mask's end. */
__global__ void __launch_bounds__(32 * WARPS)
rank_words(int32_t *counts, int32_t *ranks, const uint64_t *mask, int64_t n, int64_t words)
{
	int64_t chunk = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.y;
	int lane = threadIdx.x;
	if (chunk * CHUNK > words) return; /* the end's place may begin a chunk */
	int64_t w = chunk * CHUNK + lane;
	int mine = w < words ? __popcll(word_of(mask, w, n)) : 0;
	int before = lanes_before(mine, lane);
	if (ranks) {
		if (w <= words) ranks[w] = counts[chunk] + before;
	} else if (lane == 31) {
		counts[chunk] = before + mine;
	}
}

/* A warp compacts a word at a time. */
template <typename E>
__global__ void __launch_bounds__(32 * WARPS)
compact_words(E *out, const E *inp, const uint64_t *mask, const int32_t *ranks, int64_t n, int64_t words)
{
	int64_t chunk = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.y;
#pragma unroll 4
	for (int64_t w = chunk * CHUNK; w < min(words, chunk * CHUNK + CHUNK); w++) {
		uint64_t kept = word_of(mask, w, n);
#pragma unroll
		for (int bit = threadIdx.x; bit < 64; bit += 32)
			if (kept >> bit & 1) out[ranks[w] + __popcll(kept & ((uint64_t(1) << bit) - 1))] = inp[64 * w + bit];
	}
}

/* How many bits of the mask are before bit i. */
__device__ __forceinline__ int rank_of(const uint64_t *mask, const int32_t *ranks, int64_t i)
{
	int inside = i % 64 ? __popcll(mask[i / 64] & ((uint64_t(1) << i % 64) - 1)) : 0;
	return ranks[i / 64] + inside;
}

/* A warp does the entries of a row. */
__global__ void __launch_bounds__(32 * WARPS)
compact_row(int32_t *row, int32_t *col, const int32_t *from_row, const int32_t *from_col, const uint64_t *mask,
	const int32_t *ranks, int rows, int64_t cols)
{
	int64_t r = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.y;
	if (r > rows) return;
	int64_t first = from_row ? from_row[r] : r * cols;
	if (threadIdx.x == 0) row[r] = rank_of(mask, ranks, first);
	if (r == rows) return;
	int64_t end = from_row ? from_row[r + 1] : first + cols;
	for (int64_t i = first + threadIdx.x; i < end; i += 32)
		if (mask[i / 64] >> i % 64 & 1)
			col[rank_of(mask, ranks, i)] = from_col ? from_col[i] : static_cast<int32_t>(i - first);
}

dim3 warps_for(int64_t items) { return dim3(parts(items, WARPS)); }

int32_t sum_chunks(void *stream, int32_t *counts, int64_t chunks)
{
	LAUNCH(sum_before, 1, THREADS, 0, stream, counts, chunks);
	return launched();
}

template <typename E>
int32_t compact(void *stream, void *out, const void *inp, const uint64_t *mask, const int32_t *ranks, int64_t n)
{
	int64_t words = parts(n, 64);
	if (n == 0) return 0;
	LAUNCH(compact_words<E>, warps_for(parts(words, CHUNK)), dim3(32, WARPS), 0, stream, static_cast<E *>(out),
		static_cast<const E *>(inp), mask, ranks, n, words);
	return launched();
}

template <typename E>
__global__ void __launch_bounds__(256) mask_narrow(E *x, const uint64_t *mask, int64_t n)
{
	int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
	if (i < n && !(mask[i / 64] >> i % 64 & 1)) x[i] = narrow<E>(0);
}

template <typename E> int32_t mask_elements(void *stream, void *x, const uint64_t *mask, int64_t n)
{
	LAUNCH(mask_narrow<E>, dim3(parts(n, 256)), 256, 0, stream, static_cast<E *>(x), mask, n);
	return launched();
}

} // namespace

int32_t dynmo_cuda_mask_weights(dynmo_cuda *k, void *stream, void *x, const uint64_t *mask, int64_t n)
{
	if (n == 0) return 0;
	return BY_TYPE(k, mask_elements, stream, x, mask, n);
}

int32_t dynmo_cuda_select_largest(dynmo_cuda *k, void *stream, uint64_t *kept, const float *x, const uint64_t *mask,
	int64_t n, uint32_t threshold, int64_t ties)
{
	if (n == 0) return 0;
	int64_t words = parts(n, 64), chunks = parts(words, CHUNK);
	selection s = {x, mask, n, threshold};
	void *counts = nullptr;
	if (ties > 0 && ties < n) {
		if (int32_t status = workspace(k, sizeof(int32_t) * chunks, &counts)) return status;
		LAUNCH(count_ties, warps_for(chunks), dim3(32, WARPS), 0, stream, static_cast<int32_t *>(counts), s, words);
		if (int32_t status = sum_chunks(stream, static_cast<int32_t *>(counts), chunks)) return status;
	}
	LAUNCH(select, warps_for(chunks), dim3(32, WARPS), 0, stream, kept, s, words, static_cast<const int32_t *>(counts), ties);
	return launched();
}

int32_t dynmo_cuda_mask_ranks(dynmo_cuda *k, void *stream, int32_t *ranks, const uint64_t *mask, int64_t n)
{
	int64_t words = parts(n, 64), chunks = words / CHUNK + 1;
	void *work;
	if (int32_t status = workspace(k, sizeof(int32_t) * chunks, &work)) return status;
	int32_t *counts = static_cast<int32_t *>(work);
	LAUNCH(rank_words, warps_for(chunks), dim3(32, WARPS), 0, stream, counts, static_cast<int32_t *>(nullptr), mask, n, words);
	if (int32_t status = sum_chunks(stream, counts, chunks)) return status;
	LAUNCH(rank_words, warps_for(chunks), dim3(32, WARPS), 0, stream, counts, ranks, mask, n, words);
	return launched();
}

int32_t dynmo_cuda_compact(dynmo_cuda *k, void *stream, void *out, const void *inp, const uint64_t *mask,
	const int32_t *ranks, int64_t n)
{
	return BY_TYPE(k, compact, stream, out, inp, mask, ranks, n);
}

int32_t dynmo_cuda_compact_wide(dynmo_cuda *, void *stream, float *out, const float *inp, const uint64_t *mask,
	const int32_t *ranks, int64_t n)
{
	return compact<float>(stream, out, inp, mask, ranks, n);
}

int32_t dynmo_cuda_compact_rows(dynmo_cuda *, void *stream, int32_t *row, int32_t *col, const int32_t *from_row,
	const int32_t *from_col, const uint64_t *mask, const int32_t *ranks, int32_t o, int32_t c)
{
	LAUNCH(compact_row, warps_for(static_cast<int64_t>(o) + 1), dim3(32, WARPS), 0, stream, row, col, from_row, from_col,
		mask, ranks, o, static_cast<int64_t>(c));
	return launched();
}
