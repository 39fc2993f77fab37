/* What the attention files share. */
#ifndef DYNMO_ATTENTION_CUH
#define DYNMO_ATTENTION_CUH

#include "mma.cuh"

/* b·nh heads, each of t rows of hs channels; c = nh·hs. */
struct attention_shape {
	int b, t, c, nh, hs;
	float scale; /* 1/sqrt(hs), of the scores */
};

constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

/* The rows of one head. */
template <typename E> struct head_rows {
	E *first;
	size_t stride;
	__device__ __forceinline__ E *row(int i) const { return first + i * stride; }
};

/* The rows of head (of b·nh) in part p of a matrix (b·t, parts·c): queries, keys
 * and values are parts 0, 1 and 2 of three. */
template <typename E>
__device__ __forceinline__ head_rows<E> rows_of(E *matrix, attention_shape s, int head, int parts, int p) {
	size_t stride = static_cast<size_t>(parts) * s.c;
	size_t row = static_cast<size_t>(head / s.nh) * s.t;
	return {matrix + row * stride + static_cast<size_t>(p) * s.c + head % s.nh * s.hs, stride};
}

/* Of a query row, for the backward pass: p_j = 2^(s_j·log2(e) - lse2), and
 * ds_j = p_j·(dout·v_j - mean)·scale. */
struct __align__(8) query_stats {
	float lse2; /* lse·log2(e) */
	float mean; /* dout·out, the mean of dout·v under p */
};

/* On tensor cores: bfloat16, head sizes 32, 64 and 128, operands aligned to 16 bytes. */
int32_t attention_tiles_forward(void *stream, bf16 *out, float *lse, const bf16 *qkv, attention_shape s);
int32_t attention_tiles_backward(void *stream, bf16 *dqkv, const bf16 *dout, const bf16 *qkv,
	const query_stats *stats, attention_shape s);

/* Anything else. vector: operands are aligned to 16 bytes, and hs is a multiple of 8. */
template <typename E>
int32_t attention_plain_forward(void *stream, E *out, float *lse, const E *qkv, attention_shape s, bool vector);
template <typename E>
int32_t attention_plain_backward(void *stream, E *dqkv, const E *dout, const E *qkv, const query_stats *stats,
	attention_shape s, bool vector);

#endif
