/* Vectors of 8 lanes: the operations that vector.h lists and explains, in AVX2 and FMA. */
#define LANES 8
#define FN(name) dynmo_avx2_##name
#define TILE_VECTORS 8
#define BLOCK_VECTORS 2 /* of 16 registers 8 hold sums */

typedef __m256 vf;
typedef __m256d vd; /* half as many lanes */

static inline vf vset1(float x) { return _mm256_set1_ps(x); }
static inline vf vload(const float *p) { return _mm256_loadu_ps(p); }
static inline void vstore(float *p, vf x) { _mm256_storeu_ps(p, x); }

static inline __m256i first_lanes(int64_t n)
{
	return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vf vload_some(const float *p, int64_t n) { return _mm256_maskload_ps(p, first_lanes(n)); }
static inline void vstore_some(float *p, vf x, int64_t n) { _mm256_maskstore_ps(p, first_lanes(n), x); }

static inline vf vfma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vmax(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf vmin(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline vf vsqrt(vf x) { return _mm256_sqrt_ps(x); }
static inline vf vzero_below(vf y, vf x, vf low) { return _mm256_and_ps(y, _mm256_cmp_ps(x, low, _CMP_NLT_UQ)); }

static inline vf vkeep(vf x, uint32_t bits)
{
	__m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
	__m256i kept = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), lane), lane);
	return _mm256_and_ps(x, _mm256_castsi256_ps(kept));
}

static inline vf vpow2(vf magic)
{
	__m256i n = _mm256_slli_epi32(_mm256_castps_si256(magic), 23);
	return _mm256_castsi256_ps(_mm256_add_epi32(n, _mm256_set1_epi32(0x3f800000)));
}

static inline uint32_t vmatch(vf x, uint32_t prefix, int32_t shift)
{
	__m256i bits = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
	bits = _mm256_srl_epi32(bits, _mm_cvtsi32_si128(shift));
	return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(bits, _mm256_set1_epi32((int)prefix))));
}

static inline void vadd4(float sums[4], const vf v[4])
{
	vf low = _mm256_unpacklo_ps(v[0], v[1]) + _mm256_unpackhi_ps(v[0], v[1]);
	vf high = _mm256_unpacklo_ps(v[2], v[3]) + _mm256_unpackhi_ps(v[2], v[3]);
	vf s = _mm256_shuffle_ps(low, high, 0x44) + _mm256_shuffle_ps(low, high, 0xee);
	_mm_storeu_ps(sums, _mm_loadu_ps(sums) + (_mm256_castps256_ps128(s) + _mm256_extractf128_ps(s, 1)));
}

static inline float vsum(vf x)
{
	__m128 s = _mm256_castps256_ps128(x) + _mm256_extractf128_ps(x, 1);
	s = s + _mm_movehl_ps(s, s);
	return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline vd vwiden(const float *p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }

#include "x86.h"
