/* The square transpose that both x86 paths use: 8 x 8 in 256-bit registers. */
static inline void vtranspose(float *dst, int64_t dst_ld, const float *src, int64_t src_ld)
{
	__m256 r[8], s[8];
	for (int i = 0; i < 8; i++)
		r[i] = _mm256_loadu_ps(src + i * src_ld);
	for (int i = 0; i < 8; i += 2) {
		s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
		s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
	}
	for (int i = 0; i < 8; i += 4) {
		r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
		r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xee);
		r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
		r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xee);
	}
	for (int i = 0; i < 4; i++) {
		_mm256_storeu_ps(dst + i * dst_ld, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
		_mm256_storeu_ps(dst + (i + 4) * dst_ld, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
	}
}

#define TRANSPOSE 8
