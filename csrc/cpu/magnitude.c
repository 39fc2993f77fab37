/* One pass of the radix selection by magnitude. */
#include "kernels.h"

static inline uint32_t magnitude(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits & 0x7fffffff;
}

/* Elements go by words of 64, the grain of the mask: a word in which no
 * element matches costs one comparison per vector. */
void dynmo_cpu_magnitude_histogram(const dynmo_cpu *k, int64_t *hist, const float *x, const uint64_t *mask,
	int64_t n, uint32_t prefix, int32_t fixed)
{
	int32_t down = 24 - fixed;
	int64_t other[256] = {0}; /* odd elements, so that equal neighbours do not wait for each other */
	for (int64_t i = 0; i < n; i += 64) {
		const float *word = x + i;
		uint64_t kept = mask ? mask[i / 64] : ~(uint64_t)0;
		float last[64] = {0};
		if (n - i < 64) {
			memcpy(last, word, (size_t)(n - i) * sizeof *last);
			word = last;
			kept &= ((uint64_t)1 << (n - i)) - 1;
		}
		if (fixed && kept)
			kept &= k->match(word, prefix, 32 - fixed);
		if (~kept == 0) {
			for (int j = 0; j < 64; j += 2) {
				hist[magnitude(word[j]) >> down & 0xff]++;
				other[magnitude(word[j + 1]) >> down & 0xff]++;
			}
			continue;
		}
		for (; kept; kept &= kept - 1)
			hist[magnitude(word[__builtin_ctzll(kept)]) >> down & 0xff]++;
	}
	for (int j = 0; j < 256; j++)
		hist[j] += other[j];
}
