/* Rows of a gated MLP, of rotary positions and of mixtures of experts. */

/* silu(x) = x·sigma, sigma = 1/(1 + e^-x). */
static void FN(swiglu_forward)(float *out, const float *gate, const float *up, int64_t c)
{
	for (int64_t j = 0; j < c; j += LANES) {
		vf x = vload_n(gate + j, c - j);
		vf sigma = vset1(1) / (vset1(1) + vexp(vset1(0) - x));
		vstore_n(out + j, x * sigma * vload_n(up + j, c - j), c - j);
	}
}

/* silu'(x) = sigma + x·sigma', where sigma' = e^-x·sigma². */
static void FN(swiglu_backward)(float *dgate, float *dup, const float *dout, const float *gate, const float *up, int64_t c)
{
	for (int64_t j = 0; j < c; j += LANES) {
		int64_t left = c - j;
		vf x = vload_n(gate + j, left), dy = vload_n(dout + j, left), e = vexp(vset1(0) - x);
		vf sigma = vset1(1) / (vset1(1) + e);
		vstore_n(dgate + j, dy * vload_n(up + j, left) * vfma(x, (e * sigma) * sigma, sigma), left);
		vstore_n(dup + j, dy * (x * sigma), left);
	}
}

/* Rotates the channels of a (half) with those of b by the angles' cos and sign·sin. */
static void FN(rotate)(float *a, float *b, const float *cos, const float *sin, float sign, int64_t half)
{
	for (int64_t j = 0; j < half; j += LANES) {
		int64_t left = half - j;
		vf x = vload_n(a + j, left), y = vload_n(b + j, left), c = vload_n(cos + j, left);
		vf s = vset1(sign) * vload_n(sin + j, left);
		vstore_n(a + j, x * c - y * s, left);
		vstore_n(b + j, vfma(y, c, x * s), left);
	}
}

/* out = Σ_j factor[j]·inp[rows[j]], rows of c, of the k rows that are not negative; factor
 * may be NULL: 1. The first one begins the sum, so that one row alone keeps its bits. */
static void FN(combine_row)(float *out, const float *inp, const int32_t *rows, const float *factor, int64_t k, int64_t c)
{
	int64_t first = 0;
	while (first < k && rows[first] < 0)
		first++;
	for (int64_t at = 0; at < c; at += LANES) {
		vf sum = vset1(0);
		for (int64_t j = first; j < k; j++) {
			if (rows[j] < 0)
				continue;
			vf x = vload_n(inp + rows[j] * c + at, c - at) * vset1(factor ? factor[j] : 1);
			if (j == first)
				sum = x;
			else
				sum += x;
		}
		vstore_n(out + at, sum, c - at);
	}
}
