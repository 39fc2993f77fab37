/* Rows of RMSNorm. */

static inline float row_squares(const float *x, int64_t c)
{
	vf s = vset1(0);
	for (int64_t j = 0; j < c; j += LANES) {
		vf xj = vload_n(x + j, c - j);
		s = vfma(xj, xj, s);
	}
	return vsum(s);
}

static void FN(rmsnorm_forward)(float *out, float *rstd, const float *inp, const float *weight, int64_t n, int64_t c,
	float eps)
{
	for (int64_t i = 0; i < n; i++) {
		const float *x = inp + i * c;
		float r = 1 / __builtin_sqrtf(row_squares(x, c) / (float)c + eps);
		for (int64_t j = 0; j < c; j += LANES)
			vstore_n(out + i * c + j, vload_n(x + j, c - j) * vset1(r) * vload_n(weight + j, c - j), c - j);
		rstd[i] = r;
	}
}

static void FN(rmsnorm_backward_input)(float *dinp, const float *dout, const float *inp, const float *rstd,
	const float *weight, int64_t n, int64_t c)
{
	for (int64_t i = 0; i < n; i++) {
		const float *dy = dout + i * c, *x = inp + i * c;
		float *dx = dinp + i * c;
		vf r = vset1(rstd[i]), gxsum = vset1(0);
		for (int64_t j = 0; j < c; j += LANES) {
			vf g = vload_n(dy + j, c - j) * vload_n(weight + j, c - j);
			gxsum = vfma(g, vload_n(x + j, c - j) * r, gxsum);
		}
		vf gxmean = vset1(vsum(gxsum) / (float)c);
		for (int64_t j = 0; j < c; j += LANES) {
			int64_t left = c - j;
			vf g = vload_n(dy + j, left) * vload_n(weight + j, left);
			vstore_n(dx + j, vfma(r, g - vload_n(x + j, left) * r * gxmean, vload_n(dx + j, left)), left);
		}
	}
}

/* Adds rows in ascending order, a block of columns at a time in registers. */
static inline void rms_weight_columns(float *dweight, const float *dout, const float *inp, const float *rstd, int64_t n,
	int64_t ld, int vectors, int64_t left)
{
	vf dw[4];
	for (int u = 0; u < vectors; u++)
		dw[u] = vset1(0);
	for (int64_t i = 0; i < n; i++) {
		vf r = vset1(rstd[i]);
		for (int u = 0; u < vectors; u++) {
			int64_t at = i * ld + u * LANES;
			dw[u] = vfma(vload_n(dout + at, left), vload_n(inp + at, left) * r, dw[u]);
		}
	}
	for (int u = 0; u < vectors; u++)
		vstore_n(dweight + u * LANES, vload_n(dweight + u * LANES, left) + dw[u], left);
}

static void FN(rmsnorm_backward_weight)(float *dweight, const float *dout, const float *inp, const float *rstd, int64_t n,
	int64_t c, int64_t ld)
{
	int64_t j = 0;
	for (; j + 4 * LANES <= c; j += 4 * LANES)
		rms_weight_columns(dweight + j, dout + j, inp + j, rstd, n, ld, 4, LANES);
	for (; j < c; j += LANES)
		rms_weight_columns(dweight + j, dout + j, inp + j, rstd, n, ld, 1, c - j);
}
