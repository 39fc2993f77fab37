/* Scores and masks of what is pruned together: blocks of 32 x 32, and two of every four. */
#include "kernels.h"

#include <float.h>
#include <math.h>

enum { BLOCK_SIDE = DYNMO_BLOCK, FOURS = GRAIN / 4 };

/* Blocks of a matrix (32·o, 32·c): those in compressed rows, or all. */
struct blocks {
	float *scores;
	uint64_t *mask; /* that is made */
	const float *w;
	const uint64_t *before, *blocks;
	const int32_t *row; /* or NULL */
	int64_t c;
};

static inline int64_t row_start(const struct blocks *b, int64_t row)
{
	return b->row ? b->row[row] : row * b->c * BLOCK_SIDE;
}

/* Items are rows of blocks. */
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
				live |= b->before ? (uint32_t)(b->before[at / 64] >> at % 64) : 1; /* a row of it is half a word */
			}
			for (int j = 0; j < BLOCK_SIDE; j++)
				sum += sums[j];
			scores[block] = live ? (sum < FLT_MIN ? FLT_MIN : sum) : 0; /* NaN stays one */
		}
	}
}

void dynmo_cpu_block_scores(const dynmo_cpu *k, float *scores, const float *w, const uint64_t *mask, const int32_t *row,
	int64_t c, int64_t o)
{
	struct blocks b = {.scores = scores, .w = w, .before = mask, .row = row, .c = c};
	dynmo_parallel(k->team, o, GRAIN / (BLOCK_SIDE * BLOCK_SIDE * (c + 1)) + 1, score_blocks, &b);
}

/* The rows of blocks in a row of blocks lie in turn: each is half a word. Two rows of
 * blocks have no word in common. */
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

struct fours {
	float *scores;
	uint64_t *kept;
	const float *w;
	const uint64_t *before, *whole;
	int64_t n;
};

static unsigned bits_before(const struct fours *f, int64_t u)
{
	return f->before ? f->before[u / 16] >> u % 16 * 4 & 15 : 15;
}

static void score_fours(const void *job, int64_t first, int64_t last)
{
	const struct fours *f = job;
	for (int64_t u = first; u < last; u++) {
		const float *w = f->w + 4 * u;
		float a = fabsf(w[0]), b = fabsf(w[1]), c = fabsf(w[2]), d = fabsf(w[3]), lost;
		/* Of the smaller of each two the smallest is one; the other is the next smaller or the
		 * larger of its pair. */
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

/* Returns the bits of the two of four that stay. Keys order as PairMask's elements do. */
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

/* Items are words of the mask, of 16 fours. */
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
