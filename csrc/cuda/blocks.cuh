/* Products with a matrix in compressed rows whose entries are whole blocks of 32 x 32: the
 * values of 32 rows are a dense matrix (32, 32·blocks) of their kept blocks. Blocks that are
 * not kept are neither read nor multiplied.
 *
 * Tiles are 128 long one way and a block's side, 32, the other. A sum over rows or columns
 * takes the kept blocks in ascending order. A sum over tokens takes the tokens in ascending
 * order, 32 at a time. So no order depends on other work of the GPU. */
#ifndef DYNMO_BLOCKS_CUH
#define DYNMO_BLOCKS_CUH

#include "sparse.cuh"

enum { BLOCK_SIDE = 32, BLOCK_TILE = 128, BLOCK_GATHERED = BLOCK_TILE / BLOCK_SIDE /* blocks of a tile of BLOCKS_SAMPLE */ };

/* d (n, rows) = x (n, cols) · Wᵀ + bias; d (n, cols) = x (n, rows) · W; d, values of float,
 * += yᵀ (rows, n) · x (n, cols) at the entries. */
enum block_kind { BLOCKS_FORWARD, BLOCKS_INPUT, BLOCKS_SAMPLE };

/* A kept block: where it is in the summed dimension, its first value, and the step from one
 * of its rows to the next. */
struct block_kept {
	int32_t place, value, pitch;
};

/* y is W's values, except in BLOCKS_SAMPLE; bias may be null. BLOCKS_INPUT alone has lists
 * (cols/32, rows/32), the kept blocks of each column of blocks, and counts (cols/32), the
 * lengths of these lists. */
struct block_product {
	void *d;
	const void *x, *y, *bias;
	csr w;
	int32_t n;
	const block_kept *lists;
	const int32_t *counts;

	/* The kept blocks of 32 rows, and the first's first value. */
	__device__ __forceinline__ int kept_of(int strip, int *first) const
	{
		*first = w.row[strip * BLOCK_SIDE];
		return (w.row[strip * BLOCK_SIDE + 1] - *first) / BLOCK_SIDE;
	}

	/* The kept block number i of a strip that has `kept` from `first` on. */
	__device__ __forceinline__ block_kept in_strip(int first, int kept, int i) const
	{
		int value = first + i * BLOCK_SIDE;
		return {w.col[value] / BLOCK_SIDE, value, kept * BLOCK_SIDE};
	}
};

/* The blocks that a tile sums over: those of 32 rows FORWARD, else of 32 columns. */
template <bool FORWARD> struct block_walk {
	const block_product &p;
	int outer, first, kept;

	__device__ __forceinline__ block_walk(const block_product &p, int outer) : p(p), outer(outer), first(0)
	{
		if constexpr (FORWARD)
			kept = p.kept_of(outer, &first);
		else
			kept = p.counts[outer];
	}

	__device__ __forceinline__ block_kept operator[](int i) const
	{
		if constexpr (FORWARD)
			return p.in_strip(first, kept, i);
		else
			return p.lists[static_cast<int64_t>(outer) * (p.w.rows / BLOCK_SIDE) + i];
	}
};

/* Any alignment, without tensor cores. */
template <typename E> int32_t blocks_plain(void *stream, block_kind kind, const block_product &p);

/* blocks_multiply makes a product of elements of k's type; its lists need not be there. */
int32_t blocks_multiply(dynmo_cuda *k, void *stream, block_kind kind, block_product p);

#endif
