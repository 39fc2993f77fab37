/* Vectors of 4 lanes in the compiler's own vector types: for any processor. */
#define LANES 4
#define FN(name) dynmo_generic_##name
#define TILE_VECTORS 8

typedef float vf __attribute__((vector_size(16)));
typedef double vd __attribute__((vector_size(16))); /* half as many lanes */

static inline vf vset1(float x) { return (vf){x, x, x, x}; }

static inline vf vload(const float *p)
{
	vf x;
	memcpy(&x, p, sizeof x);
	return x;
}

static inline void vstore(float *p, vf x) { memcpy(p, &x, sizeof x); }

static inline vf vload_some(const float *p, int64_t n)
{
	vf x = {0};
	memcpy(&x, p, (size_t)n * sizeof *p);
	return x;
}

static inline void vstore_some(float *p, vf x, int64_t n) { memcpy(p, &x, (size_t)n * sizeof *p); }

static inline vf vfma(vf a, vf b, vf c) { return a * b + c; }

static inline vf vmax(vf a, vf b)
{
	for (int l = 0; l < LANES; l++)
		b[l] = a[l] > b[l] ? a[l] : b[l];
	return b;
}

static inline vf vmin(vf a, vf b)
{
	for (int l = 0; l < LANES; l++)
		b[l] = a[l] < b[l] ? a[l] : b[l];
	return b;
}

static inline vf vsqrt(vf x)
{
	for (int l = 0; l < LANES; l++)
		x[l] = __builtin_sqrtf(x[l]);
	return x;
}

static inline vf vzero_below(vf y, vf x, vf low)
{
	for (int l = 0; l < LANES; l++)
		y[l] = x[l] < low[l] ? 0 : y[l];
	return y;
}

static inline vf vkeep(vf x, uint32_t bits)
{
	for (int l = 0; l < LANES; l++)
		x[l] = bits >> l & 1 ? x[l] : 0;
	return x;
}

static inline vf vpow2(vf magic)
{
	typedef uint32_t vi __attribute__((vector_size(16)));
	return (vf)(((vi)magic << 23) + 0x3f800000u);
}

static inline uint32_t vmatch(vf x, uint32_t prefix, int32_t shift)
{
	uint32_t bits = 0;
	for (int l = 0; l < LANES; l++) {
		uint32_t u;
		float f = x[l];
		memcpy(&u, &f, sizeof u);
		bits |= (uint32_t)((u & 0x7fffffff) >> shift == prefix) << l;
	}
	return bits;
}

static inline float vsum(vf x) { return (x[0] + x[2]) + (x[1] + x[3]); }

static inline void vsum4(float sums[4], const vf v[4])
{
	for (int i = 0; i < 4; i++)
		sums[i] = vsum(v[i]);
}

static inline vd vwiden(const float *p) { return (vd){p[0], p[1]}; }

/* x[t] is token t's channels; x and tile hold LANES x LANES elements. */
static inline void vtranspose(float *dst, int64_t dst_ld, const float *src, int64_t src_ld)
{
	for (int i = 0; i < LANES; i++)
		for (int j = 0; j < LANES; j++)
			dst[j * dst_ld + i] = src[i * src_ld + j];
}

#define TRANSPOSE LANES
