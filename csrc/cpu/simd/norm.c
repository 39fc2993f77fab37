/* Rows of the norms: LayerNorm, or RMSNorm, whose rows have no mean. A row is in L1 after
 * its first pass, so the variance is summed around the mean in a second one. Both norms are
 * the same loops, compiled for each. */

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

static inline void forward_rows(float *out, float *mean, float *rstd, const float *inp, const float *weight,
	const float *bias, int64_t n, int64_t c, float eps, int centred)
{
	for (int64_t i = 0; i < n; i++) {
		const float *x = inp + i * c;
		float m = centred ? row_sum(x, c) / (float)c : 0;
		float r = 1 / __builtin_sqrtf(row_square_sum(x, m, c) / (float)c + eps);
		for (int64_t j = 0; j < c; j += LANES) {
			int64_t left = c - j;
			vf xhat = (vload_n(x + j, left) - vset1(m)) * vset1(r), w = vload_n(weight + j, left), y = xhat * w;
			if (centred)
				y = vfma(xhat, w, vload_n(bias + j, left));
			vstore_n(out + i * c + j, y, left);
		}
		if (centred)
			mean[i] = m;
		rstd[i] = r;
	}
}

static void FN(norm_forward)(float *out, float *mean, float *rstd, const float *inp, const float *weight,
	const float *bias, int64_t n, int64_t c, float eps)
{
	if (mean)
		forward_rows(out, mean, rstd, inp, weight, bias, n, c, eps, 1);
	else
		forward_rows(out, NULL, rstd, inp, weight, NULL, n, c, eps, 0);
}

static inline void backward_rows(float *dinp, const float *dout, const float *inp, const float *mean,
	const float *rstd, const float *weight, int64_t n, int64_t c, int centred)
{
	for (int64_t i = 0; i < n; i++) {
		const float *dy = dout + i * c, *x = inp + i * c;
		float *dx = dinp + i * c;
		vf m = vset1(centred ? mean[i] : 0), r = vset1(rstd[i]), gsum = vset1(0), gxsum = vset1(0);
		for (int64_t j = 0; j < c; j += LANES) { /* g is 0 in absent lanes */
			int64_t left = c - j;
			vf g = vload_n(dy + j, left) * vload_n(weight + j, left);
			gsum += g;
			gxsum = vfma(g, (vload_n(x + j, left) - m) * r, gxsum);
		}
		vf gmean = vset1(centred ? vsum(gsum) / (float)c : 0), gxmean = vset1(vsum(gxsum) / (float)c);
		for (int64_t j = 0; j < c; j += LANES) {
			int64_t left = c - j;
			vf g = vload_n(dy + j, left) * vload_n(weight + j, left);
			vf xhat = (vload_n(x + j, left) - m) * r;
			vstore_n(dx + j, vfma(r, g - gmean - xhat * gxmean, vload_n(dx + j, left)), left);
		}
	}
}

static void FN(norm_backward_input)(float *dinp, const float *dout, const float *inp, const float *mean,
	const float *rstd, const float *weight, int64_t n, int64_t c)
{
	if (mean)
		backward_rows(dinp, dout, inp, mean, rstd, weight, n, c, 1);
	else
		backward_rows(dinp, dout, inp, NULL, rstd, weight, n, c, 0);
}

/* Adds rows in ascending order, a block of columns at a time in registers. */
static inline void weight_columns(float *dweight, float *dbias, const float *dout, const float *inp,
	const float *mean, const float *rstd, int64_t n, int64_t ld, int vectors, int64_t left, int centred)
{
	vf dw[4], db[4];
	for (int u = 0; u < vectors; u++)
		dw[u] = db[u] = vset1(0);
	for (int64_t i = 0; i < n; i++) {
		vf m = vset1(centred ? mean[i] : 0), r = vset1(rstd[i]);
		for (int u = 0; u < vectors; u++) {
			vf dy = vload_n(dout + i * ld + u * LANES, left);
			if (centred)
				db[u] += dy;
			dw[u] = vfma(dy, (vload_n(inp + i * ld + u * LANES, left) - m) * r, dw[u]);
		}
	}
	for (int u = 0; u < vectors; u++) {
		float *w = dweight + u * LANES;
		vstore_n(w, vload_n(w, left) + dw[u], left);
		if (centred)
			vstore_n(dbias + u * LANES, vload_n(dbias + u * LANES, left) + db[u], left);
	}
}

static inline void weight_rows(float *dweight, float *dbias, const float *dout, const float *inp, const float *mean,
	const float *rstd, int64_t n, int64_t c, int64_t ld, int centred)
{
	int64_t j = 0;
	for (; j + 4 * LANES <= c; j += 4 * LANES)
		weight_columns(dweight + j, centred ? dbias + j : NULL, dout + j, inp + j, mean, rstd, n, ld, 4, LANES, centred);
	for (; j < c; j += LANES)
		weight_columns(dweight + j, centred ? dbias + j : NULL, dout + j, inp + j, mean, rstd, n, ld, 1, c - j, centred);
}

static void FN(norm_backward_weight)(float *dweight, float *dbias, const float *dout, const float *inp,
	const float *mean, const float *rstd, int64_t n, int64_t c, int64_t ld)
{
	if (mean)
		weight_rows(dweight, dbias, dout, inp, mean, rstd, n, c, ld, 1);
	else
		weight_rows(dweight, NULL, dout, inp, NULL, rstd, n, c, ld, 0);
}
