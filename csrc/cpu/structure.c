/* Scores and masks for pruning in units: blocks of 32 x 32 elements, or two elements of every
 * four. The units with the lowest scores are pruned. A mask has a bit for each element. */
#include "kernels.h"

#include <float.h>
#include <math.h>

enum { BLOCK_SIDE = DYNMO_BLOCK, FOURS = GRAIN / 4 };

/* A call on the blocks of a matrix (32·o, 32·c). */
struct blocks {
	float *scores;          /* result: one for each block that the matrix has */
	uint64_t *mask;         /* result: a bit for each element of w */
	const float *w;         /* the elements of these blocks, row by row of the matrix */
	const uint64_t *before; /* a bit for each element of w: 1 if it is not pruned yet. NULL: none is pruned */
	const uint64_t *blocks; /* a bit for each block: 1 if it stays */
	const int32_t *row;     /* where each row of the matrix begins in w. NULL: the matrix has all blocks */
	int64_t c;
};

/* Returns where a row of the matrix begins in w. */
static inline int64_t row_start(const struct blocks *b, int64_t row)
{
	return b->row ? b->row[row] : row * b->c * BLOCK_SIDE;
}

/* Sets the scores of a range of block rows. The score of a block is its sum of squares, or 0 if all its
 * elements are pruned. */
static void score_blocks(const void *job, int64_t first, int64_t last)
{
	const struct blocks *b = job;
	for (int64_t row = first * BLOCK_SIDE; row < last * BLOCK_SIDE; row += BLOCK_SIDE) {
		int64_t begin = row_start(b, row), count = (row_start(b, row + 1) - begin) / BLOCK_SIDE;
		float *scores = b->scores + begin / (BLOCK_SIDE * BLOCK_SIDE);
		for (int64_t block = 0; block < count; block++) {
			float sums[BLOCK_SIDE] = {0}, sum = 0;
			uint32_t live = !b->before;
			for (int64_t i = 0; i < BLOCK_SIDE; i++) {
				int64_t at = row_start(b, row + i) + block * BLOCK_SIDE;
				for (int j = 0; j < BLOCK_SIDE; j++)
					sums[j] += b->w[at + j] * b->w[at + j];
				live |= b->before ? (uint32_t)(b->before[at / 64] >> at % 64) : 1; /* a row of a block is half a word of the mask */
			}
			for (int j = 0; j < BLOCK_SIDE; j++)
				sum += sums[j];
			scores[block] = live ? (sum < FLT_MIN ? FLT_MIN : sum) : 0; /* a NaN stays a NaN */
		}
	}
}

void dynmo_cpu_block_scores(const dynmo_cpu *k, float *scores, const float *w, const uint64_t *mask, const int32_t *row,
	int64_t c, int64_t o)
{
	struct blocks b = {.scores = scores, .w = w, .before = mask, .row = row, .c = c};
	dynmo_parallel(k->team, o, GRAIN / (BLOCK_SIDE * BLOCK_SIDE * (c + 1)) + 1, score_blocks, &b);
}

/* Sets the mask of a range of block rows. A row of the matrix has one row of each of its blocks, one
 * after the other. Each is 32 elements, half a word of the mask. Two block rows have no word in
 * common, so threads do not write the same word. */
static void mask_blocks(const void *job, int64_t first, int64_t last)
{
	const struct blocks *b = job;
	uint32_t *halves = (uint32_t *)b->mask;
	for (int64_t row = first * BLOCK_SIDE; row < last * BLOCK_SIDE; row++) {
		int64_t begin = row_start(b, row), count = (row_start(b, row + 1) - begin) / BLOCK_SIDE;
		int64_t block = row_start(b, row / BLOCK_SIDE * BLOCK_SIDE) / (BLOCK_SIDE * BLOCK_SIDE);
		for (int64_t i = 0; i < count; i++, block++)
			halves[begin / BLOCK_SIDE + i] = b->blocks[block / 64] >> block % 64 & 1 ? ~(uint32_t)0 : 0;
	}
}

void dynmo_cpu_block_mask(const dynmo_cpu *k, uint64_t *mask, const uint64_t *blocks, const int32_t *row, int64_t c,
	int64_t o)
{
	struct blocks b = {.mask = mask, .blocks = blocks, .row = row, .c = c};
	dynmo_parallel(k->team, o, GRAIN / (BLOCK_SIDE * (c + 1)) + 1, mask_blocks, &b);
}

/* A call on n groups of four elements. */
struct fours {
	float *scores;          /* result (n) */
	uint64_t *kept;         /* result: a bit for each element */
	const float *w;         /* (4·n) */
	const uint64_t *before; /* a bit for each element: 1 if it is not pruned yet. NULL: none is pruned */
	const uint64_t *whole;  /* a bit for each group: 1 if all four elements stay */
	int64_t n;
};

/* Returns the four bits of group u in before. */
static unsigned bits_before(const struct fours *f, int64_t u)
{
	return f->before ? f->before[u / 16] >> u % 16 * 4 & 15 : 15;
}

/* Sets the scores of a range of groups: the sum of the two smallest |w|, or 0 for a pruned group. */
static void score_fours(const void *job, int64_t first, int64_t last)
{
	const struct fours *f = job;
	for (int64_t u = first; u < last; u++) {
		const float *w = f->w + 4 * u;
		float a = fabsf(w[0]), b = fabsf(w[1]), c = fabsf(w[2]), d = fabsf(w[3]), lost;
		/* The smallest of four is low or lower. The second smallest is the other of these two, or
		 * the larger element in the pair of the smallest. */
		float low = fminf(a, b), high = fmaxf(a, b), lower = fminf(c, d), higher = fmaxf(c, d);
		lost = low < lower ? low + fminf(high, lower) : lower + fminf(higher, low);
		f->scores[u] = bits_before(f, u) == 15 ? fmaxf(lost, FLT_MIN) : 0;
	}
}

void dynmo_cpu_pair_scores(const dynmo_cpu *k, float *scores, const float *w, const uint64_t *mask, int64_t n)
{
	struct fours f = {.scores = scores, .w = w, .before = mask, .n = n};
	dynmo_parallel(k->team, n, FOURS, score_fours, &f);
}

/* Returns four bits: 1 for the two elements that stay. PairMask says which these are. Keys have its
 * order: elements that are not pruned first, then larger magnitudes, then lower indices. */
static unsigned pair_of(const float *w, unsigned before)
{
	uint64_t key[4];
	unsigned kept = 0;
	for (int j = 0; j < 4; j++)
		key[j] = (uint64_t)(before >> j & 1) << 63 | (uint64_t)dynmo_magnitude(w[j]) << 2 | (uint64_t)(3 - j);
	for (int j = 0; j < 4; j++) {
		int better = 0;
		for (int other = 0; other < 4; other++)
			better += key[other] > key[j];
		kept |= (unsigned)(better < 2) << j;
	}
	return kept;
}

/* Sets a range of words of the mask. A word has the bits of 16 groups. */
static void mask_fours(const void *job, int64_t first, int64_t last)
{
	const struct fours *f = job;
	for (int64_t i = first; i < last; i++) {
		uint64_t word = 0;
		for (int64_t u = 16 * i; u < dynmo_min(f->n, 16 * i + 16); u++) {
			unsigned kept = f->whole[u / 64] >> u % 64 & 1 ? 15 : pair_of(f->w + 4 * u, bits_before(f, u));
			word |= (uint64_t)kept << u % 16 * 4;
		}
		f->kept[i] = word;
	}
}

void dynmo_cpu_pair_mask(const dynmo_cpu *k, uint64_t *kept, const float *w, const uint64_t *mask, const uint64_t *whole,
	int64_t n)
{
	struct fours f = {.kept = kept, .w = w, .before = mask, .whole = whole, .n = n};
	dynmo_parallel(k->team, (n + 15) / 16, FOURS / 16, mask_fours, &f);
}
