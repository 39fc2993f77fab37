/* Declarations that the files of csrc/cpu share. Files here run the loops over tiles and
 * call the BLAS; files in simd/ hold the inner loops and are compiled once for
 * each path, into one table of functions per path.
 *
 * Rounding: the compiler may fuse a multiplication with the addition that uses
 * the product (the default of GCC and Clang). No other optimisation changes
 * values, so a NaN stays a NaN. Length and path alone fix the order of a sum. */
#ifndef DYNMO_KERNELS_H
#define DYNMO_KERNELS_H

#include <stddef.h>
#include <string.h>

#include "../include/dynmo_cpu.h"
#include "team.h"

struct adamw {
	float lr, beta1, rest1, beta2, rest2, eps, decay; /* rest = 1 - beta */
	float grad_scale, mscale, vscale;                 /* 1/(1 - beta^step) */
};

/* Elements of a range of a shared call: some microseconds of work, whole words
 * of a mask. */
enum { GRAIN = 16384 };

enum { DYNMO_BLOCK = 32 }; /* rows and columns of a block of a matrix that is pruned by blocks */

enum {
	BLOCK = 4096,  /* elements of a sum of squares */
	COLUMNS = 128, /* columns that a sum over rows takes in one go, or a multiple of them */
};

/* A backend: the inner loops of its path, and the threads that run them. */
struct dynmo_cpu {
	struct dynmo_team *team;
	struct dynmo_means *means; /* of dense products; NULL: the BLAS */
	int32_t vectors; /* products of one row are products of a vector: see dynmo_cpu_use_vectors */
	/* elementwise.c */
	void (*add)(float *out, const float *a, const float *b, int64_t n);
	void (*to_bfloat16)(uint16_t *out, const float *x, int64_t n);
	void (*add_bfloat16)(float *out, const float *a, const uint16_t *b, int64_t n); /* a or NULL */
	uint32_t (*accumulate_fixed)(int64_t *sum, const float *x, int64_t n); /* returns the largest magnitude */
	void (*add_fixed)(int64_t *sum, const int64_t *other, int64_t n);
	void (*round_fixed)(float *out, const int64_t *sum, int64_t n);
	/* sums (c) += Σ_n x, rows ld apart */
	void (*column_sums)(float *sums, const float *x, int64_t n, int64_t c, int64_t ld);
	void (*gelu_forward)(float *out, const float *inp, int64_t n);
	void (*gelu_backward)(float *dinp, const float *inp, const float *dout, int64_t n);
	void (*adamw)(float *w, float *m, float *v, const float *g, int64_t n, const struct adamw *a);
	void (*square_sums)(double *sums, const float *x, int64_t n); /* one sum for each block */
	/* magnitude.c */
	void (*mask)(float *x, const uint64_t *mask, int64_t n);
	uint64_t (*match)(const float *x, uint32_t prefix, int32_t shift); /* 64 elements */
	/* norm.c: RMSNorm where mean is NULL, and with it bias or dbias */
	void (*norm_forward)(float *out, float *mean, float *rstd, const float *inp, const float *weight,
		const float *bias, int64_t n, int64_t c, float eps);
	void (*norm_backward_input)(float *dinp, const float *dout, const float *inp, const float *mean,
		const float *rstd, const float *weight, int64_t n, int64_t c);
	void (*norm_backward_weight)(float *dweight, float *dbias, const float *dout, const float *inp,
		const float *mean, const float *rstd, int64_t n, int64_t c, int64_t ld); /* rows ld apart */
	/* rows.c */
	void (*swiglu_forward)(float *out, const float *gate, const float *up, int64_t c);
	void (*swiglu_backward)(float *dgate, float *dup, const float *dout, const float *gate, const float *up, int64_t c);
	void (*rotate)(float *a, float *b, const float *cos, const float *sin, float sign, int64_t half);
	void (*combine_row)(float *out, const float *inp, const int32_t *rows, const float *factor, int64_t k, int64_t c);
	/* softmax.c */
	float (*row_max)(const float *x, int64_t n);
	double (*exp_sum)(float *x, float shift, int64_t n);         /* x = exp(x - shift); returns Σ x */
	double (*sum_exp)(const float *x, float shift, int64_t n);   /* Σ exp(x - shift), the same bits */
	void (*exp_row)(float *x, float shift, int64_t n);           /* x = exp(x - shift) */
	void (*scaled_exp_row)(float *x, float shift, float factor, int64_t n); /* x = factor·exp(x - shift) */
	void (*scale_row)(float *x, float factor, int64_t n);        /* x *= factor */
	float (*dot)(const float *a, const float *b, int64_t n);
	void (*softmax_backward_row)(float *dp, const float *p, float delta, int64_t n); /* dp = p·(dp - delta) */
	/* sparse.c: tiles hold `width` tokens of each channel, channel by channel */
	int64_t (*tile_width)(int64_t tokens); /* floats per channel that `tokens` (<= tile) take */
	int64_t tile;                          /* tokens of a full tile */
	void (*pack)(float *tile, const float *x, int64_t ld, int64_t tokens, int64_t channels);
	void (*unpack)(float *x, int64_t ld, const float *tile, int64_t tokens, int64_t channels);
	void (*fill)(float *y, const float *bias, int64_t outputs, int64_t width); /* y = bias or 0 */
	/* y += x times values: output o's entries are those from o·slot to ends[o] */
	void (*gather)(float *y, const float *x, const int32_t *ends, int64_t slot, const int32_t *inputs,
		const float *values, int64_t outputs, int64_t width);
	/* values += the products y·x over the tokens; three more behind each group may change */
	void (*sample)(float *values, const float *y, const float *x, const int32_t *ends, int64_t slot,
		const int32_t *inputs, int64_t outputs, int64_t width);
	/* block.c: y[o·ldy + v] += Σ_i w[o·outer + i·inner]·x[i·ldx + v], o < DYNMO_BLOCK, i < depth,
	 * v < width, a multiple of the lanes */
	void (*block)(float *y, int64_t ldy, const float *x, int64_t ldx, const float *w, int64_t outer, int64_t inner,
		int64_t depth, int64_t width);
};

extern const struct dynmo_cpu dynmo_generic_kernels, dynmo_avx2_kernels, dynmo_avx512_kernels;

/* Rounds floats up to whole cache lines. */
static inline int64_t dynmo_lines(int64_t floats) { return (floats + 15) & ~(int64_t)15; }

/* Returns the first cache line in a workspace, which costs at most one line. */
static inline float *dynmo_align(float *work) { return (float *)(((uintptr_t)work + 63) & ~(uintptr_t)63); }

/* The bits of |x|, which ascend with it. */
static inline uint32_t dynmo_magnitude(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits & 0x7fffffff;
}

enum { DYNMO_FIXED_END = 0x46000000 }; /* the bits of 2^13, behind the numbers of fixed point */

static inline int64_t dynmo_min(int64_t a, int64_t b) { return a < b ? a : b; }

/* Says whether all n indices are inside a table. */
static inline int32_t dynmo_inside(const int32_t *index, int64_t n, int64_t table)
{
	for (int64_t i = 0; i < n; i++)
		if (index[i] < 0 || index[i] >= table)
			return 0;
	return 1;
}

/* How many rows of c elements make a range of a shared call. */
static inline int64_t dynmo_row_grain(int64_t c) { return GRAIN / (c + 1) + 1; }

/* How many columns of n rows do: whole blocks of columns. */
static inline int64_t dynmo_column_grain(int64_t n) { return (GRAIN / COLUMNS / (n + 1) + 1) * COLUMNS; }

/* Sets how many threads the BLAS may use, for the whole process. */
void dynmo_blas_threads(int32_t threads);

/* C = alpha·op(A)·op(B) + beta·C, row-major, op(A) (m, k), op(B) (k, n). */
void dynmo_sgemm(int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k, float alpha,
	const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

/* sums (c) += Σ_n x (n, c). */
void dynmo_column_sums(const dynmo_cpu *k, float *sums, const float *x, int64_t n, int64_t c);

#endif
