/* Loops over the elements of a mask. A word of a mask has bits of 64 elements. */

/* Sets to 0 the elements of x (n) whose bit in mask is 0. */
static void FN(mask)(float *x, const uint64_t *mask, int64_t n)
{
	for (int64_t i = 0; i < n; i += 64) {
		uint64_t word = mask[i / 64];
		int64_t last = dynmo_min(n, i + 64);
		if (~word == 0)
			continue;
		for (int64_t j = i; j < last; j += LANES, word >>= LANES)
			vstore_n(x + j, vkeep(vload_n(x + j, last - j), (uint32_t)word & ((1u << LANES) - 1)), last - j);
	}
}

/* Returns a bit for each of 64 elements: 1 if the bits of |x| >> shift are prefix. */
static uint64_t FN(match)(const float *x, uint32_t prefix, int32_t shift)
{
	uint64_t word = 0;
	for (int j = 0; j < 64; j += LANES)
		word |= (uint64_t)vmatch(vload(x + j), prefix, shift) << j;
	return word;
}
