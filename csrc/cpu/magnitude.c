/* One pass of a radix selection by magnitude: a histogram of 8 bits. The magnitude of a float is its
 * bits without the sign, an integer that ascends with |x|. */
#include "kernels.h"

struct histogram {
	const dynmo_cpu *k;
	int64_t *hist;        /* (256): counts are added */
	const float *x;
	const uint64_t *mask; /* a bit for each element: 0 leaves it out. NULL: all count */
	uint32_t prefix;      /* only elements count whose magnitude >> (32 - fixed) is prefix */
	int32_t fixed;        /* 0, 8, 16 or 24; the next 8 bits select the element of hist */
};

/* Counts elements [first, last). first is a multiple of 64. Each step takes the 64 elements of a word
 * of the mask: a word in which no element has the prefix costs one comparison per vector. */
static void count(const void *job, int64_t first, int64_t last)
{
	const struct histogram *h = job;
	int32_t down = 24 - h->fixed; /* shifts the 8 bits to the right end */
	int64_t even[256] = {0}, odd[256] = {0}; /* two counters, so that equal neighbours do not wait for each other */
	for (int64_t i = first; i < last; i += 64) {
		const float *word = h->x + i;
		uint64_t kept = h->mask ? h->mask[i / 64] : ~(uint64_t)0;
		float end[64] = {0}; /* the last word, filled up with zeros that do not count */
		if (last - i < 64) {
			memcpy(end, word, (size_t)(last - i) * sizeof *end);
			word = end;
			kept &= ((uint64_t)1 << (last - i)) - 1;
		}
		if (h->fixed && kept)
			kept &= h->k->match(word, h->prefix, 32 - h->fixed);
		if (~kept == 0) {
			for (int j = 0; j < 64; j += 2) {
				even[dynmo_magnitude(word[j]) >> down & 0xff]++;
				odd[dynmo_magnitude(word[j + 1]) >> down & 0xff]++;
			}
			continue;
		}
		for (; kept; kept &= kept - 1)
			even[dynmo_magnitude(word[__builtin_ctzll(kept)]) >> down & 0xff]++;
	}
	for (int j = 0; j < 256; j++)
		__atomic_fetch_add(&h->hist[j], even[j] + odd[j], __ATOMIC_RELAXED);
}

void dynmo_cpu_magnitude_histogram(const dynmo_cpu *k, int64_t *hist, const float *x, const uint64_t *mask,
	int64_t n, uint32_t prefix, int32_t fixed)
{
	dynmo_parallel(k->team, n, 4 * GRAIN, count, &(struct histogram){k, hist, x, mask, prefix, fixed});
}
