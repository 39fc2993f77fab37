/* The operations of every path's vectors. generic.h, avx2.h and avx512.h define, for
 * vectors vf of LANES floats and vd of LANES/2 doubles:
 *
 *   vset1 vload vstore           unaligned; + - * / are the compiler's
 *   vload_some vstore_some       the first n lanes, 0 <= n < LANES; a load's others are 0
 *   vfma(a, b, c)                a·b + c
 *   vmax(a, b), vmin(a, b)       b where either is NaN
 *   vsqrt
 *   vzero_below(y, x, low)       0 where x < low, else y
 *   vkeep(x, bits)               0 where a lane's bit is 0
 *   vpow2(magic)                 2^n for magic = 1.5·2^23 + n
 *   vmatch(x, prefix, shift)     bit of each lane whose |x| >> shift is prefix
 *   vsum(x)                      over the lanes, in a fixed tree
 *   vadd4(sums, v)               sums += that of each of four vectors
 *   vwiden(p)                    LANES/2 floats as doubles
 *   vtranspose                   TRANSPOSE x TRANSPOSE elements
 *
 * Loops that are not hot use vload_n and vstore_n, which take the elements
 * that are left, so that a tail runs through the same arithmetic. */

static inline vf vload_n(const float *p, int64_t left) { return left >= LANES ? vload(p) : vload_some(p, left); }

static inline void vstore_n(float *p, vf x, int64_t left)
{
	if (left >= LANES)
		vstore(p, x);
	else
		vstore_some(p, x, left);
}

/* e^x within 2 units in the last place: x = n·ln 2 + r with |r| <= ln(2)/2, and
 * the Taylor sum of e^r to r^7 (the rest is below 6e-9). 0 below -87.3, where
 * the result would be subnormal; e^88.3 above 88.3; NaN of NaN. */
static inline vf vexp(vf x)
{
	const vf low = vset1(-87.3f), magic = vset1(0x1.8p23f);
	vf y = vmin(vset1(88.3f), vmax(low, x));
	vf shifted = vfma(y, vset1(0x1.715476p+0f), magic); /* log2 e */
	vf n = shifted - magic;
	vf r = vfma(n, vset1(-0x1.62e4p-1f), y); /* ln 2 in two parts; n·first is exact */
	r = vfma(n, vset1(-0x1.7f7d1cp-20f), r);
	vf p = vset1(1.0f / 5040);
	p = vfma(p, r, vset1(1.0f / 720));
	p = vfma(p, r, vset1(1.0f / 120));
	p = vfma(p, r, vset1(1.0f / 24));
	p = vfma(p, r, vset1(1.0f / 6));
	p = vfma(p, r, vset1(0.5f));
	p = vfma(p, r, vset1(1));
	p = vfma(p, r, vset1(1));
	return vzero_below(p * vpow2(shifted), x, low);
}
