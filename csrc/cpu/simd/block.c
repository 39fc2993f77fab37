/* The product of a matrix w of DYNMO_BLOCK rows with the rows of x:
 *
 *	y[o·ldy + v] += Σ_i w[o·outer + i·inner] · x[i·ldx + v]    o < DYNMO_BLOCK, i < depth, v < width
 *
 * Sums stay in registers, and add in ascending order of i. width is a multiple of LANES. */

enum { OUTPUTS = 4 }; /* rows of y whose sums are computed together, so that they share the loads of x */

/* Computes OUTPUTS rows of y, `vectors` vectors wide. */
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

/* Computes the whole product: OUTPUTS rows at a time, BLOCK_VECTORS vectors wide where they fit. */
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
