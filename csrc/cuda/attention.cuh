/* Declarations that the attention files share. */
#ifndef DYNMO_ATTENTION_CUH
#define DYNMO_ATTENTION_CUH

#include "mma.cuh"

/* b sequences, each of nh heads of hs channels; c = nh·hs. Sequence i is tokens
 * [offsets[i], offsets[i+1]). Neighbouring heads, `share` of them, have the same keys and
 * values, which are `keys` channels each. */
struct attention_shape {
	const int32_t *offsets; /* device memory */
	int b, t, c, nh, hs;    /* t: at least the tokens of the longest sequence */
	int share, keys;        /* keys = nh/share·hs */
	float scale;            /* 1/sqrt(hs), of the scores */
};

constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

/* The rows of one head. */
template <typename E> struct head_rows {
	using element = E;
	E *first;
	size_t stride;
	__device__ __forceinline__ E *row(int i) const { return first + i * stride; }
};

/* One of the b·nh heads. */
struct attention_head {
	int first, t; /* its sequence's first token, and tokens */
	int number;   /* among the sequence's heads */

	__device__ __forceinline__ attention_head(attention_shape s, int head)
		: first(s.offsets[head / s.nh]), t(s.offsets[head / s.nh + 1] - first), number(head % s.nh) {}

	/* Where the head's values begin where a query has one: in lse and stats. */
	__device__ __forceinline__ size_t sums(attention_shape s) const {
		return static_cast<size_t>(first) * s.nh + static_cast<size_t>(number) * t;
	}
};

/* The rows of a head in a matrix (n, c). */
template <typename E> __device__ __forceinline__ head_rows<E> rows_of(E *matrix, attention_shape s, attention_head h) {
	size_t stride = s.c;
	return {matrix + h.first * stride + h.number * s.hs, stride};
}

/* The rows of a head in part p of qkv (n, c + 2·keys): 0 is its queries, 1 and 2 are the
 * keys and values that it has or shares. */
template <typename E>
__device__ __forceinline__ head_rows<E> part_of(E *qkv, attention_shape s, attention_head h, int p) {
	int at = p == 0 ? h.number * s.hs : s.c + (p - 1) * s.keys + h.number / s.share * s.hs;
	size_t stride = s.c + 2 * s.keys;
	return {qkv + h.first * stride + at, stride};
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

/* Fills in the statistics of all queries, which lie as lse does. */
template <typename E>
int32_t attention_stats_of(void *stream, query_stats *stats, const E *dout, const E *out, const float *lse,
	attention_shape s, bool vector);

inline attention_shape attention_shape_of(const int32_t *offsets, int32_t b, int32_t longest, int32_t c, int32_t nh,
	int32_t kv) {
	int hs = c / nh;
	return {offsets, b, longest, c, nh, hs, nh / kv, kv * hs, 1 / sqrtf(static_cast<float>(hs))};
}

inline bool attention_aligned(const void *p) { return (reinterpret_cast<uintptr_t>(p) & 15) == 0; }

/* Heads by bucket, as kernel.Buckets says. */
struct attention_buckets {
	const int32_t *order, *starts;
	int count;
};

template <typename T, int N, int M> __device__ __forceinline__ void clear(T (&x)[N][M]) {
#pragma unroll
	for (int i = 0; i < N; i++)
#pragma unroll
		for (int j = 0; j < M; j++) x[i][j] = 0;
}

#endif
