/* Vectors of 4 lanes: the operations that vector.h lists and explains, in the compiler's own vector
 * types. They run on any processor. */
#define LANES 4
#define FN(name) dynmo_generic_##name
#define TILE_VECTORS 8
#define BLOCK_VECTORS 2 /* of 16 registers 8 hold sums */

typedef float vf __attribute__((vector_size(16)));
typedef double vd __attribute__((vector_size(16))); /* half as many lanes */
typedef int32_t vi __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));

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

/* a where the lane's mask is set, else b. */
static inline vf choose(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }

static inline vf vmax(vf a, vf b) { return choose(a > b, a, b); }
static inline vf vmin(vf a, vf b) { return choose(a < b, a, b); }

/* The compiler's vectors have no root, and its scalar one may be a call. */
static inline vf vsqrt(vf x)
{
#if defined(__SSE2__)
	return (vf)_mm_sqrt_ps((__m128)x);
#elif defined(__aarch64__)
	return (vf)vsqrtq_f32((float32x4_t)x);
#else
	for (int l = 0; l < LANES; l++)
		x[l] = __builtin_sqrtf(x[l]);
	return x;
#endif
}

static inline vf vzero_below(vf y, vf x, vf low) { return (vf)(~(x < low) & (vi)y); }

static inline vf vkeep(vf x, uint32_t bits)
{
	vi lane = {1, 2, 4, 8};
	return (vf)(((lane & (int32_t)bits) != 0) & (vi)x);
}

static inline vf vpow2(vf magic) { return (vf)(((vu)magic << 23) + 0x3f800000u); }

static inline uint32_t vmatch(vf x, uint32_t prefix, int32_t shift)
{
	vu equal = (vu)((((vu)x & 0x7fffffffu) >> (uint32_t)shift) == prefix) & (vu){1, 2, 4, 8};
	return (equal[0] | equal[1]) | (equal[2] | equal[3]);
}

static inline float vsum(vf x) { return (x[0] + x[2]) + (x[1] + x[3]); }

static inline void vadd4(float sums[4], const vf v[4])
{
	for (int i = 0; i < 4; i++)
		sums[i] += vsum(v[i]);
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
