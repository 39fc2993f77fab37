/* Elements that a mask keeps: the largest magnitudes, and their values and places one behind the
 * other. Items are words of the mask, 64 elements each. */
#include "kernels.h"

enum { WORDS = GRAIN / 64 };

static inline int64_t words(int64_t n) { return (n + 63) / 64; }

/* Returns word w of a mask of n bits, those from n on 0; all are 1 without a mask. */
static inline uint64_t word_of(const uint64_t *mask, int64_t w, int64_t n)
{
	uint64_t word = mask ? mask[w] : ~(uint64_t)0;
	return n - 64 * w < 64 ? word & (((uint64_t)1 << (n - 64 * w)) - 1) : word;
}

struct selection {
	uint64_t *kept;
	const float *x;
	const uint64_t *mask;
	int64_t n;
	int32_t above; /* which magnitudes are kept */
};

static void select_words(const void *job, int64_t first, int64_t last)
{
	const struct selection *s = job;
	for (int64_t w = first; w < last; w++) {
		const float *x = s->x + 64 * w;
		uint64_t kept = 0;
		for (int64_t j = 0, count = dynmo_min(64, s->n - 64 * w); j < count; j++)
			kept |= (uint64_t)((int32_t)dynmo_magnitude(x[j]) > s->above) << j;
		s->kept[w] = kept & word_of(s->mask, w, s->n);
	}
}

/* Keeps the first `ties` elements at the threshold and removes the others at the threshold. */
static void drop_ties(const struct selection *s, uint32_t threshold, int64_t ties)
{
	for (int64_t w = 0; w < words(s->n); w++)
		for (uint64_t left = s->kept[w]; left; left &= left - 1) {
			int j = __builtin_ctzll(left);
			if (dynmo_magnitude(s->x[64 * w + j]) == threshold && --ties < 0)
				s->kept[w] &= ~((uint64_t)1 << j);
		}
}

void dynmo_cpu_select_largest(const dynmo_cpu *k, uint64_t *kept, const float *x, const uint64_t *mask, int64_t n,
	uint32_t threshold, int64_t ties)
{
	int32_t above = threshold > INT32_MAX ? INT32_MAX : (int32_t)threshold - (ties > 0);
	struct selection s = {kept, x, mask, n, above};
	dynmo_parallel(k->team, words(n), WORDS, select_words, &s);
	if (ties > 0 && ties < n)
		drop_ties(&s, threshold, ties);
}

void dynmo_cpu_mask_ranks(int32_t *ranks, const uint64_t *mask, int64_t n)
{
	int32_t total = 0;
	for (int64_t w = 0; w < words(n); w++) {
		ranks[w] = total;
		total += __builtin_popcountll(word_of(mask, w, n));
	}
	ranks[words(n)] = total;
}

struct compaction {
	float *out;
	const float *inp;
	const uint64_t *mask;
	const int32_t *ranks;
	int64_t n;
};

static void compact_words(const void *job, int64_t first, int64_t last)
{
	const struct compaction *c = job;
	for (int64_t w = first; w < last; w++) {
		float *out = c->out + c->ranks[w];
		for (uint64_t kept = word_of(c->mask, w, c->n); kept; kept &= kept - 1)
			*out++ = c->inp[64 * w + __builtin_ctzll(kept)];
	}
}

void dynmo_cpu_compact(const dynmo_cpu *k, float *out, const float *inp, const uint64_t *mask, const int32_t *ranks,
	int64_t n)
{
	dynmo_parallel(k->team, words(n), WORDS, compact_words, &(struct compaction){out, inp, mask, ranks, n});
}

struct rows {
	int32_t *row, *col;
	const int32_t *from_row, *from_col;
	const uint64_t *mask;
	const int32_t *ranks;
	int64_t n, c;
};

/* Returns how many bits of the mask are before bit i. */
static int32_t rank_of(const struct rows *r, int64_t i)
{
	uint64_t below = i % 64 ? r->mask[i / 64] & (((uint64_t)1 << i % 64) - 1) : 0;
	return r->ranks[i / 64] + __builtin_popcountll(below);
}

/* Items are rows. */
static void compact_rows(const void *job, int64_t first, int64_t last)
{
	const struct rows *r = job;
	for (int64_t row = first; row < last; row++) {
		int64_t i = r->from_row ? r->from_row[row] : row * r->c, end = r->from_row ? r->from_row[row + 1] : i + r->c;
		int32_t e = rank_of(r, i);
		r->row[row] = e;
		for (int64_t at = i; at < end; at++)
			if (r->mask[at / 64] >> at % 64 & 1)
				r->col[e++] = r->from_col ? r->from_col[at] : (int32_t)(at - i);
	}
}

void dynmo_cpu_compact_rows(const dynmo_cpu *k, int32_t *row, int32_t *col, const int32_t *from_row,
	const int32_t *from_col, const uint64_t *mask, const int32_t *ranks, int64_t n, int64_t c, int64_t o)
{
	struct rows r = {row, col, from_row, from_col, mask, ranks, n, c};
	dynmo_parallel(k->team, o, dynmo_row_grain(c), compact_rows, &r);
	row[o] = ranks[words(n)];
}
