/* Scores and masks of what is pruned together: blocks of 32 x 32, and two of every four. */
#include "kernels.h"

#include <float.h>
#include <math.h>

enum { BLOCK_SIDE = 32, FOURS = GRAIN / 4 };

struct blocks {
	float *scores;
	uint64_t *mask; /* that is made */
	const float *w;
	const uint64_t *before, *blocks;
	int64_t c;
};

/* Items are rows of blocks. */
static void score_blocks(const void *job, int64_t first, int64_t last, int32_t member)
{
	const struct blocks *b = job;
	int64_t width = b->c * BLOCK_SIDE;
	(void)member;
	for (int64_t block = first * b->c; block < last * b->c; block++) {
		int64_t at = block / b->c * BLOCK_SIDE * width + block % b->c * BLOCK_SIDE;
		float sums[BLOCK_SIDE] = {0}, sum = 0;
		uint32_t live = !b->before;
		for (int64_t row = 0; row < BLOCK_SIDE; row++, at += width) {
			for (int j = 0; j < BLOCK_SIDE; j++)
				sums[j] += b->w[at + j] * b->w[at + j];
			live |= b->before ? (uint32_t)(b->before[at / 64] >> at % 64) : 1; /* a row of it is half a word */
		}
		for (int j = 0; j < BLOCK_SIDE; j++)
			sum += sums[j];
		b->scores[block] = live ? (sum < FLT_MIN ? FLT_MIN : sum) : 0; /* NaN stays one */
	}
}

void dynmo_cpu_block_scores(const dynmo_cpu *k, float *scores, const float *w, const uint64_t *mask, int64_t c, int64_t o)
{
	struct blocks b = {.scores = scores, .w = w, .before = mask, .c = c};
	dynmo_parallel(k->team, o, GRAIN / (BLOCK_SIDE * BLOCK_SIDE * (c + 1)) + 1, score_blocks, &b);
}

/* Items are words of the mask, of two neighbours of the halves that blocks have in a row. */
static void mask_blocks(const void *job, int64_t first, int64_t last, int32_t member)
{
	const struct blocks *b = job;
	(void)member;
	for (int64_t i = first; i < last; i++) {
		uint64_t word = 0;
		for (int64_t half = 2 * i; half < 2 * i + 2; half++) {
			int64_t block = half / b->c / BLOCK_SIDE * b->c + half % b->c;
			word |= (b->blocks[block / 64] >> block % 64 & 1) * ((uint64_t)0xffffffff << 32 * (half % 2));
		}
		b->mask[i] = word;
	}
}

void dynmo_cpu_block_mask(const dynmo_cpu *k, uint64_t *mask, const uint64_t *blocks, int64_t c, int64_t o)
{
	struct blocks b = {.mask = mask, .blocks = blocks, .c = c};
	dynmo_parallel(k->team, o * c * BLOCK_SIDE * BLOCK_SIDE / 64, GRAIN / 64, mask_blocks, &b);
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

static void score_fours(const void *job, int64_t first, int64_t last, int32_t member)
{
	const struct fours *f = job;
	(void)member;
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
	for (int j = 0; j < 4; j++) {
		uint32_t bits;
		memcpy(&bits, w + j, sizeof bits);
		key[j] = (uint64_t)(before >> j & 1) << 63 | (uint64_t)(bits & 0x7fffffff) << 2 | (uint64_t)(3 - j);
	}
	for (int j = 0; j < 4; j++) {
		int better = 0;
		for (int other = 0; other < 4; other++)
			better += key[other] > key[j];
		kept |= (unsigned)(better < 2) << j;
	}
	return kept;
}

/* Items are words of the mask, of 16 fours. */
static void mask_fours(const void *job, int64_t first, int64_t last, int32_t member)
{
	const struct fours *f = job;
	(void)member;
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
