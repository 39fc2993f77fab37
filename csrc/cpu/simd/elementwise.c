/* Loops over elements and over columns. */
#include <math.h>

static void FN(add)(float *out, const float *a, const float *b, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES)
		vstore_n(out + i, vload_n(a + i, n - i) + vload_n(b + i, n - i), n - i);
}

/* The nearest bfloat16, of two the even one; of a NaN one that is quiet. */
static void FN(to_bfloat16)(uint16_t *out, const float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint32_t bits;
		memcpy(&bits, x + i, sizeof bits);
		uint32_t nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
		out[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : nearest);
	}
}

/* The first LANES of the bfloat16 numbers that are left; 0 behind them. */
static inline vf FN(widen)(const uint16_t *b, int64_t left)
{
	uint16_t narrow[LANES] = {0};
	uint32_t bits[LANES];
	if (left >= LANES)
		memcpy(narrow, b, sizeof narrow);
	else
		memcpy(narrow, b, (size_t)left * sizeof *b);
	for (int l = 0; l < LANES; l++)
		bits[l] = (uint32_t)narrow[l] << 16;
	vf x;
	memcpy(&x, bits, sizeof x);
	return x;
}

static void FN(add_bfloat16)(float *out, const float *a, const uint16_t *b, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES) {
		vf x = FN(widen)(b + i, n - i);
		if (a) x += vload_n(a + i, n - i);
		vstore_n(out + i, x, n - i);
	}
}

static inline uint64_t FN(bits)(double x)
{
	uint64_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}

/* Adds x, rounded to whole units of 2^-50. A double plus 1.5·2^52 is rounded to a whole number, which its last bits
 * hold. high counts 2^32 units; low counts the units that high leaves. Below 2^13 no other step rounds. Larger
 * numbers and NaN add anything: the bound says that the sum is invalid. AVX2 has no instruction for floats to
 * 64-bit integers. */
static uint32_t FN(accumulate_fixed)(int64_t *sum, const float *x, int64_t n)
{
	const double whole = 0x1.8p52;
	uint32_t most = 0;
	for (int64_t i = 0; i < n; i++) {
		uint32_t magnitude = dynmo_magnitude(x[i]);
		most = magnitude > most ? magnitude : most;
		double high = x[i] * 0x1p18 + whole;
		double low = x[i] * 0x1p50 - (high - whole) * 0x1p32 + whole;
		sum[i] = (int64_t)((uint64_t)sum[i] + (FN(bits)(high) << 32) + FN(bits)(low) - FN(bits)(whole));
	}
	return most;
}

/* Sums may wrap around: the bound says if the last one has. */
static void FN(add_fixed)(int64_t *sum, const int64_t *other, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		sum[i] = (int64_t)((uint64_t)sum[i] + (uint64_t)other[i]);
}

static void FN(round_fixed)(float *out, const int64_t *sum, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		out[i] = (float)sum[i] * 0x1p-50f;
}

/* Adds rows in ascending order, a block of columns at a time in registers. */
static void FN(column_sums)(float *sums, const float *x, int64_t n, int64_t c, int64_t ld)
{
	enum { VECTORS = COLUMNS / LANES };
	int64_t j = 0;
	for (; j + VECTORS * LANES <= c; j += VECTORS * LANES) {
		vf s[VECTORS];
		for (int u = 0; u < VECTORS; u++)
			s[u] = vset1(0);
		for (int64_t i = 0; i < n; i++)
			for (int u = 0; u < VECTORS; u++)
				s[u] += vload(x + i * ld + j + u * LANES);
		for (int u = 0; u < VECTORS; u++)
			vstore(sums + j + u * LANES, vload(sums + j + u * LANES) + s[u]);
	}
	for (; j < c; j += LANES) {
		vf s = vset1(0);
		for (int64_t i = 0; i < n; i++)
			s += vload_n(x + i * ld + j, c - j);
		vstore_n(sums + j, vload_n(sums + j, c - j) + s, c - j);
	}
}

/* 0.5·(1 + tanh(u)) = 1/(1 + e^-2u) with u = sqrt(2/π)·(x + 0.044715·x³), so
 * gelu(x) = x·sigma. Returns sigma and stores e^-2u. */
static inline vf sigma(vf x, vf square, vf *e)
{
	vf u = x * vfma(square, vset1(2 * 0.7978845608f * 0.044715f), vset1(2 * 0.7978845608f));
	*e = vexp(vset1(0) - u);
	return vset1(1) / (vset1(1) + *e);
}

static void FN(gelu_forward)(float *out, const float *inp, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES) {
		vf x = vload_n(inp + i, n - i), e;
		vstore_n(out + i, x * sigma(x, x * x, &e), n - i);
	}
}

/* gelu'(x) = sigma + x·sigma'·2u', where sigma' = e^-2u·sigma². */
static void FN(gelu_backward)(float *dinp, const float *inp, const float *dout, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES) {
		vf x = vload_n(inp + i, n - i), square = x * x, e, s = sigma(x, square, &e);
		vf du = vfma(square, vset1(6 * 0.7978845608f * 0.044715f), vset1(2 * 0.7978845608f));
		vf slope = vfma(x * du, (e * s) * s, s);
		vstore_n(dinp + i, vload_n(dout + i, n - i) * slope, n - i);
	}
}

static void FN(adamw)(float *w, float *m, float *v, const float *g, int64_t n, const struct adamw *a)
{
	for (int64_t i = 0; i < n; i += LANES) {
		int64_t left = n - i;
		vf gi = vload_n(g + i, left) * vset1(a->grad_scale), wi = vload_n(w + i, left);
		vf mi = vfma(vset1(a->beta1), vload_n(m + i, left), vset1(a->rest1) * gi);
		vf vi = vfma(vset1(a->beta2), vload_n(v + i, left), vset1(a->rest2) * gi * gi);
		vf step = mi * vset1(a->mscale) / (vsqrt(vi * vset1(a->vscale)) + vset1(a->eps));
		vstore_n(m + i, mi, left);
		vstore_n(v + i, vi, left);
		vstore_n(w + i, wi - vset1(a->lr) * vfma(vset1(a->decay), wi, step), left);
	}
}

/* Blocks of elements, each in 16 partial sums whatever the path; the
 * square of a float is exact in double, so every path gives the same bits. */
static void FN(square_sums)(double *sums, const float *x, int64_t n)
{
	enum { PARTS = 16, DOUBLES = LANES / 2, VECTORS = PARTS / DOUBLES };
	for (int64_t i = 0; i < n; i += BLOCK) {
		int64_t last = dynmo_min(n, i + BLOCK), j = i;
		vd s[VECTORS];
		double part[PARTS];
		memset(s, 0, sizeof s);
		for (; j + PARTS <= last; j += PARTS)
			for (int u = 0; u < VECTORS; u++) {
				vd y = vwiden(x + j + u * DOUBLES);
				s[u] += y * y;
			}
		memcpy(part, s, sizeof part);
		for (int l = 0; j < last; j++, l++)
			part[l] += (double)x[j] * x[j];
		for (int half = PARTS / 2; half > 0; half /= 2)
			for (int l = 0; l < half; l++)
				part[l] += part[l + half];
		sums[i / BLOCK] = part[0];
	}
}
