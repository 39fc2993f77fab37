/* Rows of a softmax. */

/* The largest element; NaNs are passed over. n >= 1. */
static float FN(row_max)(const float *x, int64_t n)
{
	float max = -__builtin_inff(), lane[LANES];
	vf m = vset1(max);
	int64_t i = 0;
	for (; i + LANES <= n; i += LANES)
		m = vmax(vload(x + i), m);
	vstore(lane, m);
	for (int l = 0; l < LANES; l++)
		max = lane[l] > max ? lane[l] : max;
	for (; i < n; i++)
		max = x[i] > max ? x[i] : max;
	return max;
}

static double FN(exp_sum)(float *x, float shift, int64_t n)
{
	vf s = vset1(0);
	int64_t i = 0;
	for (; i + LANES <= n; i += LANES) {
		vf e = vexp(vload(x + i) - vset1(shift));
		vstore(x + i, e);
		s += e;
	}
	if (i < n) {
		vf e = vexp(vload_some(x + i, n - i) - vset1(shift));
		vstore_some(x + i, e, n - i);
		s += vkeep(e, (1u << (n - i)) - 1);
	}
	return vsum(s);
}

static double FN(sum_exp)(const float *x, float shift, int64_t n)
{
	vf s = vset1(0);
	int64_t i = 0;
	for (; i + LANES <= n; i += LANES)
		s += vexp(vload(x + i) - vset1(shift));
	if (i < n)
		s += vkeep(vexp(vload_some(x + i, n - i) - vset1(shift)), (1u << (n - i)) - 1);
	return vsum(s);
}

static void FN(scaled_exp_row)(float *x, float shift, float factor, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES)
		vstore_n(x + i, vset1(factor) * vexp(vload_n(x + i, n - i) - vset1(shift)), n - i);
}

static void FN(exp_row)(float *x, float shift, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES)
		vstore_n(x + i, vexp(vload_n(x + i, n - i) - vset1(shift)), n - i);
}

static void FN(scale_row)(float *x, float factor, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES)
		vstore_n(x + i, vload_n(x + i, n - i) * vset1(factor), n - i);
}

static float FN(dot)(const float *a, const float *b, int64_t n)
{
	vf s = vset1(0);
	for (int64_t i = 0; i < n; i += LANES)
		s = vfma(vload_n(a + i, n - i), vload_n(b + i, n - i), s);
	return vsum(s);
}

static void FN(softmax_backward_row)(float *dp, const float *p, float delta, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES)
		vstore_n(dp + i, vload_n(p + i, n - i) * (vload_n(dp + i, n - i) - vset1(delta)), n - i);
}
