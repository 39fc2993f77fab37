/* The product of a small block with vectors, whose sums stay in registers. */

enum { OUTPUTS = 4 }; /* sums of as many outputs share the loads of x */

/* Of OUTPUTS outputs and `vectors` vectors. A sum is in ascending order of i. */
static inline __attribute__((always_inline)) void block_vectors(float *y, int64_t ldy, const float *x, int64_t ldx,
	const float *w, int64_t outer, int64_t inner, int64_t depth, const int vectors)
{
	vf s[OUTPUTS][BLOCK_VECTORS];
	for (int o = 0; o < OUTPUTS; o++)
		for (int u = 0; u < vectors; u++)
			s[o][u] = vload(y + o * ldy + u * LANES);
	for (int64_t i = 0; i < depth; i++) {
		vf v[BLOCK_VECTORS];
		for (int u = 0; u < vectors; u++)
			v[u] = vload(x + i * ldx + u * LANES);
		for (int o = 0; o < OUTPUTS; o++) {
			vf value = vset1(w[o * outer + i * inner]);
			for (int u = 0; u < vectors; u++)
				s[o][u] = vfma(value, v[u], s[o][u]);
		}
	}
	for (int o = 0; o < OUTPUTS; o++)
		for (int u = 0; u < vectors; u++)
			vstore(y + o * ldy + u * LANES, s[o][u]);
}

static void FN(block)(float *y, int64_t ldy, const float *x, int64_t ldx, const float *w, int64_t outer, int64_t inner,
	int64_t depth, int64_t width)
{
	const int64_t full = BLOCK_VECTORS * LANES;
	for (int o = 0; o < DYNMO_BLOCK; o += OUTPUTS, y += OUTPUTS * ldy, w += OUTPUTS * outer) {
		int64_t v = 0;
		for (; v + full <= width; v += full)
			block_vectors(y + v, ldy, x + v, ldx, w, outer, inner, depth, BLOCK_VECTORS);
		for (; v < width; v += LANES)
			block_vectors(y + v, ldy, x + v, ldx, w, outer, inner, depth, 1);
	}
}
