/* Rows of LayerNorm. A row is in L1 after its first pass, so the variance is
 * summed around the mean in a second one. */

static inline float row_sum(const float *x, int64_t c)
{
	vf s = vset1(0);
	for (int64_t j = 0; j < c; j += LANES)
		s += vload_n(x + j, c - j);
	return vsum(s);
}

static inline float row_square_sum(const float *x, float mean, int64_t c)
{
	vf s = vset1(0);
	int64_t j = 0;
	for (; j + LANES <= c; j += LANES) {
		vf d = vload(x + j) - vset1(mean);
		s = vfma(d, d, s);
	}
	if (j < c) { /* the absent lanes of the last vector are mean - mean */
		vf d = vload_some(x + j, c - j) - vkeep(vset1(mean), (1u << (c - j)) - 1);
		s = vfma(d, d, s);
	}
	return vsum(s);
}

static void FN(layernorm_forward)(float *out, float *mean, float *rstd, const float *inp, const float *weight,
	const float *bias, int64_t n, int64_t c)
{
	for (int64_t i = 0; i < n; i++) {
		const float *x = inp + i * c;
		float m = row_sum(x, c) / (float)c;
		float r = 1 / __builtin_sqrtf(row_square_sum(x, m, c) / (float)c + 1e-5f);
		for (int64_t j = 0; j < c; j += LANES) {
			int64_t left = c - j;
			vf xhat = (vload_n(x + j, left) - vset1(m)) * vset1(r);
			vstore_n(out + i * c + j, vfma(xhat, vload_n(weight + j, left), vload_n(bias + j, left)), left);
		}
		mean[i] = m;
		rstd[i] = r;
	}
}

static void FN(layernorm_backward_input)(float *dinp, const float *dout, const float *inp, const float *mean,
	const float *rstd, const float *weight, int64_t n, int64_t c)
{
	for (int64_t i = 0; i < n; i++) {
		const float *dy = dout + i * c, *x = inp + i * c;
		float *dx = dinp + i * c;
		vf m = vset1(mean[i]), r = vset1(rstd[i]), gsum = vset1(0), gxsum = vset1(0);
		for (int64_t j = 0; j < c; j += LANES) { /* g is 0 in absent lanes */
			int64_t left = c - j;
			vf g = vload_n(dy + j, left) * vload_n(weight + j, left);
			gsum += g;
			gxsum = vfma(g, (vload_n(x + j, left) - m) * r, gxsum);
		}
		vf gmean = vset1(vsum(gsum) / (float)c), gxmean = vset1(vsum(gxsum) / (float)c);
		for (int64_t j = 0; j < c; j += LANES) {
			int64_t left = c - j;
			vf g = vload_n(dy + j, left) * vload_n(weight + j, left);
			vf xhat = (vload_n(x + j, left) - m) * r;
			vstore_n(dx + j, vfma(r, g - gmean - xhat * gxmean, vload_n(dx + j, left)), left);
		}
	}
}

/* Adds rows in ascending order, a block of columns at a time in registers. */
static inline void weight_columns(float *dweight, float *dbias, const float *dout, const float *inp,
	const float *mean, const float *rstd, int64_t n, int64_t ld, int vectors, int64_t left)
{
	vf dw[4], db[4];
	for (int u = 0; u < vectors; u++)
		dw[u] = db[u] = vset1(0);
	for (int64_t i = 0; i < n; i++) {
		vf m = vset1(mean[i]), r = vset1(rstd[i]);
		for (int u = 0; u < vectors; u++) {
			vf dy = vload_n(dout + i * ld + u * LANES, left);
			db[u] += dy;
			dw[u] = vfma(dy, (vload_n(inp + i * ld + u * LANES, left) - m) * r, dw[u]);
		}
	}
	for (int u = 0; u < vectors; u++) {
		float *w = dweight + u * LANES, *b = dbias + u * LANES;
		vstore_n(w, vload_n(w, left) + dw[u], left);
		vstore_n(b, vload_n(b, left) + db[u], left);
	}
}

static void FN(layernorm_backward_weight)(float *dweight, float *dbias, const float *dout, const float *inp,
	const float *mean, const float *rstd, int64_t n, int64_t c, int64_t ld)
{
	int64_t j = 0;
	for (; j + 4 * LANES <= c; j += 4 * LANES)
		weight_columns(dweight + j, dbias + j, dout + j, inp + j, mean, rstd, n, ld, 4, LANES);
	for (; j < c; j += LANES)
		weight_columns(dweight + j, dbias + j, dout + j, inp + j, mean, rstd, n, ld, 1, c - j);
}
