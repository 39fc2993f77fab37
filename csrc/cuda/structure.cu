/* Scores and masks of what is pruned together: blocks of 32 x 32, and two of every four.
 * Scores read 4 bytes and a bit for each element; masks of fours the same, of blocks a bit
 * for each block. */
#include <float.h>

#include "pack.cuh"
#include "reduce.cuh"

namespace {

const int WARPS = 8, SIDE = 32;

/* The blocks of a matrix (32·o, 32·c): those in compressed rows, or all. */
struct block_rows {
	const int32_t *row; /* or null */
	int64_t c;
	int o;

	__device__ __forceinline__ int64_t start(int64_t r) const { return row ? row[r] : r * c * SIDE; }

	/* The row that element i is in, among every `each`th one: the last that does not begin
	 * behind it. */
	__device__ __forceinline__ int64_t row_of(int64_t i, int each) const
	{
		if (!row) return i / (c * SIDE) / each * each;
		int64_t low = 0, high = static_cast<int64_t>(o) * SIDE / each;
		while (high - low > 1) {
			int64_t middle = (low + high) / 2;
			if (row[middle * each] <= i)
				low = middle;
			else
				high = middle;
		}
		return low * each;
	}
};

/* A warp scores a block; each lane has a column of the block. */
__global__ void __launch_bounds__(32 * WARPS)
score_blocks(float *scores, const float *w, const uint64_t *mask, block_rows rows, int64_t blocks)
{
	int64_t block = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.y;
	if (block >= blocks) return;
	int64_t row = rows.row_of(block * SIDE * SIDE, SIDE), inside = (block - rows.start(row) / (SIDE * SIDE)) * SIDE;
	const uint32_t *halves = reinterpret_cast<const uint32_t *>(mask); /* a row of a block is one of them */
	float sum = 0;
	uint32_t live = 0;
#pragma unroll 8
	for (int i = 0; i < SIDE; i++) {
		int64_t at = rows.start(row + i) + inside;
		float x = w[at + threadIdx.x];
		sum = fmaf(x, x, sum);
		live |= mask ? halves[at / 32] : 1;
	}
	sum = warp_reduce(sum, plus());
	if (threadIdx.x == 0) scores[block] = live ? (sum < FLT_MIN ? FLT_MIN : sum) : 0;
}

/* A thread writes half a word, which is a row of a block. */
__global__ void __launch_bounds__(256)
mask_blocks(uint32_t *halves, const uint64_t *blocks, block_rows rows, int64_t n)
{
	int64_t half = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
	if (half >= n) return;
	int64_t row = rows.row_of(half * SIDE, 1);
	int64_t block = rows.start(row / SIDE * SIDE) / (SIDE * SIDE) + half - rows.start(row) / SIDE;
	halves[half] = blocks[block / 64] >> block % 64 & 1 ? 0xffffffff : 0;
}

/* Four elements and their bits. */
struct four {
	float w[4];
	unsigned before;

	__device__ __forceinline__ four(const float *from, const uint64_t *mask, int64_t u)
	{
#pragma unroll
		for (int j = 0; j < 4; j++)
			w[j] = from[4 * u + j];
		before = mask ? static_cast<unsigned>(mask[u / 16] >> u % 16 * 4) & 15 : 15;
	}

	/* The sum of the two smallest magnitudes. */
	__device__ __forceinline__ float lost() const
	{
		float a = fabsf(w[0]), b = fabsf(w[1]), c = fabsf(w[2]), d = fabsf(w[3]);
		float low = fminf(a, b), high = fmaxf(a, b), lower = fminf(c, d), higher = fmaxf(c, d);
		return low < lower ? low + fminf(high, lower) : lower + fminf(higher, low);
	}

	/* The bits of the two that stay. Keys order as PairMask's elements do. */
	__device__ __forceinline__ unsigned pair() const
	{
		uint64_t key[4];
		unsigned kept = 0;
#pragma unroll
		for (int j = 0; j < 4; j++)
			key[j] = uint64_t(before >> j & 1) << 63 | uint64_t(__float_as_uint(w[j]) & 0x7fffffff) << 2 | unsigned(3 - j);
#pragma unroll
		for (int j = 0; j < 4; j++) {
			int better = 0;
#pragma unroll
			for (int other = 0; other < 4; other++)
				better += key[other] > key[j];
			kept |= unsigned(better < 2) << j;
		}
		return kept;
	}
};

__global__ void __launch_bounds__(256) score_fours(float *scores, const float *w, const uint64_t *mask, int64_t n)
{
	int64_t u = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
	if (u >= n) return;
	four f(w, mask, u);
	scores[u] = f.before == 15 ? fmaxf(f.lost(), FLT_MIN) : 0;
}

/* A thread does four elements, and the 16 lanes of a word join their bits. */
__global__ void __launch_bounds__(256)
mask_fours(uint64_t *kept, const float *w, const uint64_t *mask, const uint64_t *whole, int64_t n)
{
	int64_t u = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
	uint64_t bits = 0;
	if (u < n) bits = uint64_t(whole[u / 64] >> u % 64 & 1 ? 15 : four(w, mask, u).pair()) << u % 16 * 4;
#pragma unroll
	for (int apart = 8; apart > 0; apart /= 2)
		bits |= __shfl_xor_sync(0xffffffff, bits, apart);
	if (u < n && u % 16 == 0) kept[u / 16] = bits;
}

dim3 threads_for(int64_t items) { return dim3(parts(items, 256)); }

} // namespace

int32_t dynmo_cuda_block_scores(dynmo_cuda *, void *stream, float *scores, const float *w, const uint64_t *mask,
	const int32_t *row, int32_t c, int32_t o, int32_t nnz)
{
	if (nnz == 0) return 0;
	block_rows rows = {row, c, o};
	LAUNCH(score_blocks, dim3(parts(nnz, WARPS)), dim3(32, WARPS), 0, stream, scores, w, mask, rows, static_cast<int64_t>(nnz));
	return launched();
}

int32_t dynmo_cuda_block_mask(dynmo_cuda *, void *stream, uint64_t *mask, const uint64_t *blocks, const int32_t *row,
	int32_t c, int32_t o, int32_t nnz)
{
	int64_t halves = static_cast<int64_t>(nnz) * SIDE;
	if (halves == 0) return 0;
	block_rows rows = {row, c, o};
	LAUNCH(mask_blocks, threads_for(halves), 256, 0, stream, reinterpret_cast<uint32_t *>(mask), blocks, rows, halves);
	return launched();
}

int32_t dynmo_cuda_pair_scores(dynmo_cuda *, void *stream, float *scores, const float *w, const uint64_t *mask, int64_t n)
{
	if (n == 0) return 0;
	LAUNCH(score_fours, threads_for(n), 256, 0, stream, scores, w, mask, n);
	return launched();
}

int32_t dynmo_cuda_pair_mask(dynmo_cuda *, void *stream, uint64_t *kept, const float *w, const uint64_t *mask,
	const uint64_t *whole, int64_t n)
{
	if (n == 0) return 0;
	LAUNCH(mask_fours, threads_for(n), 256, 0, stream, kept, w, mask, whole, n);
	return launched();
}
