/* Vectors of 16 lanes: the operations that vector.h lists and explains, in AVX-512. */
#define LANES 16
#define FN(name) dynmo_avx512_##name
#define TILE_VECTORS 4
#define BLOCK_VECTORS 4 /* of 32 registers 16 hold sums */

typedef __m512 vf;
typedef __m512d vd; /* half as many lanes */

static inline vf vset1(float x) { return _mm512_set1_ps(x); }
static inline vf vload(const float *p) { return _mm512_loadu_ps(p); }
static inline void vstore(float *p, vf x) { _mm512_storeu_ps(p, x); }

static inline __mmask16 first_lanes(int64_t n) { return (__mmask16)((1u << n) - 1); }

static inline vf vload_some(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
static inline void vstore_some(float *p, vf x, int64_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), x); }

static inline vf vfma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vmax(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vmin(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf vsqrt(vf x) { return _mm512_sqrt_ps(x); }

static inline vf vzero_below(vf y, vf x, vf low)
{
	return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, low, _CMP_NLT_UQ), y);
}

static inline vf vkeep(vf x, uint32_t bits) { return _mm512_maskz_mov_ps((__mmask16)bits, x); }

static inline vf vpow2(vf magic)
{
	__m512i n = _mm512_slli_epi32(_mm512_castps_si512(magic), 23);
	return _mm512_castsi512_ps(_mm512_add_epi32(n, _mm512_set1_epi32(0x3f800000)));
}

static inline uint32_t vmatch(vf x, uint32_t prefix, int32_t shift)
{
	__m512i bits = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
	bits = _mm512_srl_epi32(bits, _mm_cvtsi32_si128(shift));
	return _mm512_cmpeq_epi32_mask(bits, _mm512_set1_epi32((int)prefix));
}

static inline void vadd4(float sums[4], const vf v[4])
{
	vf low = _mm512_unpacklo_ps(v[0], v[1]) + _mm512_unpackhi_ps(v[0], v[1]);
	vf high = _mm512_unpacklo_ps(v[2], v[3]) + _mm512_unpackhi_ps(v[2], v[3]);
	vf s = _mm512_shuffle_ps(low, high, 0x44) + _mm512_shuffle_ps(low, high, 0xee);
	__m256 h = _mm512_castps512_ps256(s) + _mm512_extractf32x8_ps(s, 1);
	_mm_storeu_ps(sums, _mm_loadu_ps(sums) + (_mm256_castps256_ps128(h) + _mm256_extractf128_ps(h, 1)));
}

static inline float vsum(vf x)
{
	__m256 h = _mm512_castps512_ps256(x) + _mm512_extractf32x8_ps(x, 1);
	__m128 s = _mm256_castps256_ps128(h) + _mm256_extractf128_ps(h, 1);
	s = s + _mm_movehl_ps(s, s);
	return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline vd vwiden(const float *p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }

#include "x86.h"
