/* Inner loops of products with a sparse matrix (../sparse.c). A tile has some tokens of x or y, channel
 * by channel: each channel takes `width` floats, a multiple of LANES and at most TILE_VECTORS vectors.
 * Floats of absent tokens are 0.
 *
 * Entries of the matrix are grouped by output channel. Entry e has the input channel inputs[e] and the
 * value values[e]. Output o has the entries from o·slot to ends[o]. */

static int64_t FN(tile_width)(int64_t tokens) { return (tokens + LANES - 1) / LANES * LANES; }

/* Copies x (tokens, channels), rows ld apart, to a tile: transposes it. */
static void FN(pack)(float *tile, const float *x, int64_t ld, int64_t tokens, int64_t channels)
{
	int64_t width = FN(tile_width)(tokens), whole = tokens / TRANSPOSE * TRANSPOSE, c = 0;
	for (; c + TRANSPOSE <= channels; c += TRANSPOSE)
		for (int64_t t = 0; t < whole; t += TRANSPOSE)
			vtranspose(tile + c * width + t, width, x + t * ld + c, ld);
	for (int64_t t = 0; t < whole; t++)
		for (int64_t j = c; j < channels; j++)
			tile[j * width + t] = x[t * ld + j];
	for (int64_t j = 0; j < channels; j++)
		for (int64_t t = whole; t < width; t++)
			tile[j * width + t] = t < tokens ? x[t * ld + j] : 0;
}

/* Copies a tile to x (tokens, channels), rows ld apart. */
static void FN(unpack)(float *x, int64_t ld, const float *tile, int64_t tokens, int64_t channels)
{
	int64_t width = FN(tile_width)(tokens), whole = tokens / TRANSPOSE * TRANSPOSE, c = 0;
	for (; c + TRANSPOSE <= channels; c += TRANSPOSE)
		for (int64_t t = 0; t < whole; t += TRANSPOSE)
			vtranspose(x + t * ld + c, ld, tile + c * width + t, width);
	for (int64_t t = 0; t < whole; t++)
		for (int64_t j = c; j < channels; j++)
			x[t * ld + j] = tile[j * width + t];
	for (int64_t t = whole; t < tokens; t++)
		for (int64_t j = 0; j < channels; j++)
			x[t * ld + j] = tile[j * width + t];
}

/* Calls a loop over entries with VECTORS, the number of vectors in a tile's width, as a constant. The
 * loop is compiled once for each number, so that a channel's tokens stay in registers. */
#define CASE(vectors, call) \
	case vectors: { enum { VECTORS = vectors }; call; break; }
#if TILE_VECTORS == 8
#define WIDE(call) CASE(5, call) CASE(6, call) CASE(7, call) CASE(8, call)
#else
#define WIDE(call)
#endif
#define FOR_WIDTH(call) \
	switch (width / LANES) { CASE(1, call) CASE(2, call) CASE(3, call) CASE(4, call) WIDE(call) }

/* Sets all tokens of each output channel to its bias, or to 0 if bias is NULL. */
static void FN(fill)(float *y, const float *bias, int64_t outputs, int64_t width)
{
	for (int64_t o = 0; o < outputs; o++)
		for (int64_t t = 0; t < width; t += LANES)
			vstore(y + o * width + t, vset1(bias ? bias[o] : 0));
}

/* y[o] += Σ_e values[e] · x[inputs[e]], over the entries e of output o. Each channel is a row of tokens. */
static inline __attribute__((always_inline)) void gather_vectors(float *y, const float *x, const int32_t *ends,
	int64_t slot, const int32_t *inputs, const float *values, int64_t outputs, const int vectors)
{
	for (int64_t o = 0; o < outputs; o++, y += vectors * LANES) {
		int64_t e = o * slot, end = ends[o];
		if (e == end)
			continue;
		vf s[TILE_VECTORS];
		for (int u = 0; u < vectors; u++)
			s[u] = vload(y + u * LANES);
		for (; e < end; e++) {
			const float *xi = x + (int64_t)inputs[e] * vectors * LANES;
			vf value = vset1(values[e]);
			for (int u = 0; u < vectors; u++)
				s[u] = vfma(value, vload(xi + u * LANES), s[u]);
		}
		for (int u = 0; u < vectors; u++)
			vstore(y + u * LANES, s[u]);
	}
}

static void FN(gather)(float *y, const float *x, const int32_t *ends, int64_t slot, const int32_t *inputs,
	const float *values, int64_t outputs, int64_t width)
{
	FOR_WIDTH(gather_vectors(y, x, ends, slot, inputs, values, outputs, VECTORS))
}

/* values[e] += y[o] · x[inputs[e]], the dot product over the tokens, for the entries e of output o. Takes
 * four entries at a time, so that vadd4 adds up their lanes together. The last step of a group may run
 * over up to three entries that belong to no group. */
static inline __attribute__((always_inline)) void sample_vectors(float *values, const float *y, const float *x,
	const int32_t *ends, int64_t slot, const int32_t *inputs, int64_t outputs, const int vectors)
{
	for (int64_t o = 0; o < outputs; o++, y += vectors * LANES) {
		int64_t end = ends[o];
		vf g[TILE_VECTORS];
		for (int u = 0; u < vectors; u++)
			g[u] = vload(y + u * LANES);
		for (int64_t e = o * slot; e < end; e += 4) {
			vf s[4];
			for (int l = 0; l < 4; l++) {
				const float *xi = x + (int64_t)inputs[e + l] * vectors * LANES;
				s[l] = g[0] * vload(xi);
				for (int u = 1; u < vectors; u++)
					s[l] = vfma(g[u], vload(xi + u * LANES), s[l]);
			}
			vadd4(values + e, s);
		}
	}
}

static void FN(sample)(float *values, const float *y, const float *x, const int32_t *ends, int64_t slot,
	const int32_t *inputs, int64_t outputs, int64_t width)
{
	FOR_WIDTH(sample_vectors(values, y, x, ends, slot, inputs, outputs, VECTORS))
}
