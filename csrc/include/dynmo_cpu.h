/* The C side of src/kernel/cpu. The whole boundary is this header.
 *
 * Fixed-width integers and plain pointers only. Every function that can fail
 * returns 0 or a status that dynmo_cpu_status_name names. No function keeps a
 * pointer after it returns. Workspace comes from the caller. Products that are
 * made otherwise than by the BLAS keep memory of their own. Shapes and lengths are checked in Go; values that index
 * memory (tokens, positions, offsets, targets) here.
 *
 * src/kernel/kernel.go says the result of each kernel. Matrices are
 * row-major float32; n is tokens, c channels, o output channels, v vocabulary,
 * nh heads. A pointer marked "or NULL" may be absent.
 *
 * Bits depend on the operands, the shape, the path, the BLAS and oneDNN, and on
 * nothing else: neither on the alignment of operands nor on threads, how many or which. */
#ifndef DYNMO_CPU_H
#define DYNMO_CPU_H

#include <stdint.h>

enum {
	DYNMO_CPU_OK = 0,
	DYNMO_CPU_INDEX = 1, /* a token, position, offset or target is outside its table */
	DYNMO_CPU_MEMORY = 2,
	DYNMO_CPU_DNNL = 3, /* oneDNN cannot make a product, or has no memory for it */
};

/* Instruction-set paths. Each is the same source compiled for another width. */
enum {
	DYNMO_CPU_GENERIC = 0, /* 4 lanes, whatever the compiler targets */
	DYNMO_CPU_AVX2 = 1,    /* 8 lanes, with FMA */
	DYNMO_CPU_AVX512 = 2,  /* 16 lanes: F, BW, DQ, VL */
	DYNMO_CPU_PATHS = 3,
};

/* A backend: a path and its threads, which sleep between calls. One thread at a
 * time may call it; backends share nothing. */
typedef struct dynmo_cpu dynmo_cpu;

/* Says whether this processor and build have a path. */
int32_t dynmo_cpu_has(int32_t path);
/* Returns a backend on a path that there is, NULL if there is no memory or
 * there are no threads for it. With 1 thread every call stays on the thread
 * that makes it. */
dynmo_cpu *dynmo_cpu_open(int32_t path, int32_t threads);
void dynmo_cpu_close(dynmo_cpu *k);
/* Forward products of one row take cblas_sgemv from now on. It packs nothing, so it is faster. Its last
 * bits differ from those of cblas_sgemm, which training keeps. */
void dynmo_cpu_use_vectors(dynmo_cpu *k);
/* Says whether this processor multiplies bfloat16 numbers. */
int32_t dynmo_cpu_has_bfloat16(void);
/* Opens oneDNN, once in a process. Returns NULL, or why it cannot be used, in static memory. */
const char *dynmo_cpu_dnnl_open(void);
/* Says whether oneDNN, which is open, makes products of bfloat16 or, wide, of float32 on this processor. */
int32_t dynmo_cpu_dnnl_multiplies(int32_t wide);
/* oneDNN's name, version and instructions, "" before it is open. */
const char *dynmo_cpu_dnnl_name(void);
/* Says whether this is an AMD processor of family 1Ah. */
int32_t dynmo_cpu_is_zen5(void);

/* Ways to make dense products. ROUNDED and FLOATS want an open oneDNN. */
enum {
	DYNMO_CPU_ROUNDED = 1,  /* of operands rounded to bfloat16, by oneDNN */
	DYNMO_CPU_EMULATED = 2, /* of operands rounded to bfloat16, by the BLAS */
	DYNMO_CPU_FLOATS = 3,   /* of few rows and weights, by oneDNN; others by the BLAS */
};
/* Makes dense products so from now on. forward and backward are the most rows of FLOATS. */
int32_t dynmo_cpu_multiply(dynmo_cpu *k, int32_t how, int64_t forward, int64_t backward);
/* The weights of dense products do not change from hold = 1 to hold = 0. */
void dynmo_cpu_hold(const dynmo_cpu *k, int32_t hold);
/* The BLAS in words, "" if it does not say. Static memory. */
const char *dynmo_cpu_blas_name(void);
/* The type of core that the BLAS's kernels are for, "" if it does not say. */
const char *dynmo_cpu_blas_core(void);
const char *dynmo_cpu_status_name(int32_t status);

/* wte has `vocabulary` rows, wpe `places`. dwpe may be NULL. */
int32_t dynmo_cpu_embedding_forward(const dynmo_cpu *k, float *out, const int32_t *tokens,
	const int32_t *positions, const float *wte, const float *wpe, int64_t n, int64_t c, int64_t vocabulary, int64_t places);
int32_t dynmo_cpu_embedding_backward(const dynmo_cpu *k, float *dwte, float *dwpe, const float *dout,
	const int32_t *tokens, const int32_t *positions, int64_t n, int64_t c, int64_t vocabulary, int64_t places);

/* LayerNorm, or RMSNorm where mean is NULL, and with it bias or dbias. */
void dynmo_cpu_norm_forward(const dynmo_cpu *k, float *out, float *mean, float *rstd, const float *inp,
	const float *weight, const float *bias, int64_t n, int64_t c, double eps);
void dynmo_cpu_norm_backward_input(const dynmo_cpu *k, float *dinp, const float *dout, const float *inp,
	const float *mean, const float *rstd, const float *weight, int64_t n, int64_t c);
void dynmo_cpu_norm_backward_weight(const dynmo_cpu *k, float *dweight, float *dbias, const float *dout,
	const float *inp, const float *mean, const float *rstd, int64_t n, int64_t c);

/* c = a·bᵀ, all (n, n), by one call of the BLAS on threads of its own: the rate
 * that products are measured against. No other call may be in progress. */
void dynmo_cpu_sgemm(int32_t threads, float *c, const float *a, const float *b, int64_t n);

/* bias and dbias (o) or NULL. */
int32_t dynmo_cpu_matmul_forward(const dynmo_cpu *k, float *out, const float *inp, const float *weight,
	const float *bias, int64_t n, int64_t c, int64_t o);
int32_t dynmo_cpu_matmul_backward_input(const dynmo_cpu *k, float *dinp, const float *dout, const float *weight,
	int64_t n, int64_t c, int64_t o);
int32_t dynmo_cpu_matmul_backward_weight(const dynmo_cpu *k, float *dweight, float *dbias, const float *dout,
	const float *inp, int64_t n, int64_t c, int64_t o);

/* A matrix (rows, cols) in compressed rows: row_ptr (rows + 1), col_idx
 * ascending in each row, row_ptr[rows] entries. bias and dbias (rows) or NULL.
 * work has the floats that dynmo_cpu_spmm_work returns, for any n. */
int64_t dynmo_cpu_spmm_work(const dynmo_cpu *k, int64_t rows, int64_t cols, int64_t nnz);
void dynmo_cpu_spmm_forward(const dynmo_cpu *k, float *work, float *out, const float *inp, const int32_t *row_ptr,
	const int32_t *col_idx, const float *values, const float *bias, int64_t rows, int64_t cols, int64_t n);
void dynmo_cpu_spmm_backward_input(const dynmo_cpu *k, float *work, float *dinp, const float *dout,
	const int32_t *row_ptr, const int32_t *col_idx, const float *values, int64_t rows, int64_t cols, int64_t n);
void dynmo_cpu_sddmm(const dynmo_cpu *k, float *work, float *dvalues, float *dbias, const float *dout,
	const float *inp, const int32_t *row_ptr, const int32_t *col_idx, int64_t rows, int64_t cols, int64_t n);
/* The same of a matrix whose entries are whole blocks of 32 x 32. work has the floats that
 * dynmo_cpu_blocks_work returns. */
int64_t dynmo_cpu_blocks_work(int64_t rows, int64_t cols);
void dynmo_cpu_blocks_forward(const dynmo_cpu *k, float *work, float *out, const float *inp, const int32_t *row_ptr,
	const int32_t *col_idx, const float *values, const float *bias, int64_t rows, int64_t cols, int64_t n);
void dynmo_cpu_blocks_backward_input(const dynmo_cpu *k, float *work, float *dinp, const float *dout,
	const int32_t *row_ptr, const int32_t *col_idx, const float *values, int64_t rows, int64_t cols, int64_t n);
void dynmo_cpu_blocks_sample(const dynmo_cpu *k, float *work, float *dvalues, float *dbias, const float *dout,
	const float *inp, const int32_t *row_ptr, const int32_t *col_idx, int64_t rows, int64_t cols, int64_t n);

/* qkv (n, width); the first heads·hs channels of a row are rotated. table (places, hs). */
int32_t dynmo_cpu_rotary(const dynmo_cpu *k, float *qkv, const int32_t *positions, const float *table, int64_t n,
	int64_t heads, int64_t width, int64_t hs, int32_t inverse, int64_t places);

/* qkv (n, c + 2·kv·c/nh), lse (nh·n), offsets (b + 1). Offsets that do not ascend from 0 to n,
 * or that ascend by more than longest, are an error. work has the floats that
 * dynmo_cpu_attention_work returns. */
int64_t dynmo_cpu_attention_work(const dynmo_cpu *k, int64_t longest);
int32_t dynmo_cpu_attention_forward(const dynmo_cpu *k, float *work, float *out, float *lse, const float *qkv,
	const int32_t *offsets, int64_t b, int64_t longest, int64_t n, int64_t c, int64_t nh, int64_t kv);
int32_t dynmo_cpu_attention_backward(const dynmo_cpu *k, float *work, float *dqkv, const float *dout,
	const float *qkv, const float *out, const float *lse, const int32_t *offsets, int64_t b, int64_t longest, int64_t n,
	int64_t c, int64_t nh, int64_t kv);

/* order (2·nh·n), starts (b, nh, 2, buckets + 1), pairs (2), projections (nh, buckets/2, c/nh). Indices of order or
 * starts outside of a head are an error. work has the floats that the function before returns. */
int64_t dynmo_cpu_attention_hash_work(const dynmo_cpu *k, int64_t longest, int64_t buckets, int64_t b, int64_t nh);
int32_t dynmo_cpu_attention_hash(const dynmo_cpu *k, float *work, int32_t *order, int32_t *starts, double *pairs,
	const float *qkv, const int32_t *offsets, const float *projections, int32_t shared, int64_t buckets, int64_t b,
	int64_t longest, int64_t n, int64_t c, int64_t nh);
/* qkv (n, 3c), qv (n, 2c). */
void dynmo_cpu_share_keys(const dynmo_cpu *k, float *qkv, const float *qv, int64_t n, int64_t c, int64_t nh);
void dynmo_cpu_share_keys_gradient(
	const dynmo_cpu *k, float *dqv, const float *dqkv, const float *qkv, int64_t n, int64_t c, int64_t nh);
int64_t dynmo_cpu_sparse_attention_work(const dynmo_cpu *k, int64_t longest, int64_t c, int64_t nh);
int32_t dynmo_cpu_sparse_attention_forward(const dynmo_cpu *k, float *work, float *out, float *lse, const float *qkv,
	const int32_t *offsets, const int32_t *order, const int32_t *starts, int64_t buckets, int64_t b, int64_t longest,
	int64_t n, int64_t c, int64_t nh);
int32_t dynmo_cpu_sparse_attention_backward(const dynmo_cpu *k, float *work, float *dqkv, const float *dout,
	const float *qkv, const float *out, const float *lse, const int32_t *offsets, const int32_t *order,
	const int32_t *starts, int64_t buckets, int64_t b, int64_t longest, int64_t n, int64_t c, int64_t nh);

void dynmo_cpu_gelu_forward(const dynmo_cpu *k, float *out, const float *inp, int64_t n);
void dynmo_cpu_gelu_backward(const dynmo_cpu *k, float *dinp, const float *inp, const float *dout, int64_t n);
/* gateup and dgateup (n, 2c). */
void dynmo_cpu_swiglu_forward(const dynmo_cpu *k, float *out, const float *gateup, int64_t n, int64_t c);
void dynmo_cpu_swiglu_backward(const dynmo_cpu *k, float *dgateup, const float *dout, const float *gateup, int64_t n, int64_t c);
void dynmo_cpu_add(const dynmo_cpu *k, float *out, const float *a, const float *b, int64_t n);
/* bfloat16 numbers are given as their bits; a or NULL. */
void dynmo_cpu_round(const dynmo_cpu *k, uint16_t *out, const float *x, int64_t n);
void dynmo_cpu_add_rounded(const dynmo_cpu *k, float *out, const float *a, const uint16_t *b, int64_t n);
/* sum and other (n + 2): numbers in units of 2^-50, a bound on their absolute values, and a word that stays. */
void dynmo_cpu_accumulate_fixed(const dynmo_cpu *k, int64_t *sum, const float *x, int64_t n);
void dynmo_cpu_add_fixed(const dynmo_cpu *k, int64_t *sum, const int64_t *other, int64_t n);
void dynmo_cpu_round_fixed(const dynmo_cpu *k, float *out, const int64_t *sum, int64_t n);

/* rows (n) are rows of a table of `table` rows. Only gather may have a row twice. factor (n) or NULL. */
int32_t dynmo_cpu_gather_rows(const dynmo_cpu *k, float *out, const float *inp, const int32_t *rows, const float *factor,
	int64_t n, int64_t c, int64_t table);
int32_t dynmo_cpu_scatter_rows(const dynmo_cpu *k, float *out, const float *add, const int32_t *rows, const float *keep,
	const float *factor, int64_t n, int64_t c, int64_t table);
int32_t dynmo_cpu_gate_gradient(const dynmo_cpu *k, float *dlogits, const float *dout, const float *a, const float *b,
	const int32_t *rows, const float *factor, int64_t n, int64_t c, int64_t table);

/* rows (n, each), negative ones absent; factor (n, each) or NULL. */
int32_t dynmo_cpu_combine_rows(const dynmo_cpu *k, float *out, const float *inp, const int32_t *rows, const float *factor,
	int64_t n, int64_t each, int64_t c, int64_t table);
int32_t dynmo_cpu_combine_gradient(const dynmo_cpu *k, float *dfactor, const float *dout, const float *inp,
	const int32_t *rows, int64_t n, int64_t each, int64_t c, int64_t table);

/* out, before (or NULL) and stats (3, n). */
int32_t dynmo_cpu_softmax_merge(const dynmo_cpu *k, double *out, const double *before, const float *logits,
	const int32_t *targets, int64_t n, int64_t v, int64_t first);
int32_t dynmo_cpu_softmax_gradient(const dynmo_cpu *k, float *logits, const double *stats, const int32_t *targets,
	double scale, int64_t n, int64_t v, int64_t first);
int32_t dynmo_cpu_cross_entropy(const dynmo_cpu *k, double *loss, double *out, const double *before, float *logits,
	const int32_t *targets, double scale, int64_t n, int64_t v, int64_t first);

void dynmo_cpu_likeliest(const dynmo_cpu *k, int32_t *out, const float *logits, int64_t n, int64_t v);

void dynmo_cpu_sum_squares(const dynmo_cpu *k, double *out, const float *x, int64_t n);
/* The first decayed elements decay. */
void dynmo_cpu_adamw(const dynmo_cpu *k, float *w, float *m, float *v, const float *g, int64_t n, int64_t decayed,
	double lr, double beta1, double beta2, double eps, double decay, double grad_scale, int64_t step);
void dynmo_cpu_mask(const dynmo_cpu *k, float *x, const uint64_t *mask, int64_t n);
/* mask or NULL. */
void dynmo_cpu_magnitude_histogram(const dynmo_cpu *k, int64_t *hist, const float *x, const uint64_t *mask,
	int64_t n, uint32_t prefix, int32_t fixed);

/* kept and mask of n bits; mask or NULL. ranks has one more than the mask has words. */
void dynmo_cpu_select_largest(const dynmo_cpu *k, uint64_t *kept, const float *x, const uint64_t *mask, int64_t n,
	uint32_t threshold, int64_t ties);
void dynmo_cpu_mask_ranks(int32_t *ranks, const uint64_t *mask, int64_t n);
void dynmo_cpu_compact(const dynmo_cpu *k, float *out, const float *inp, const uint64_t *mask, const int32_t *ranks,
	int64_t n);
/* row (o + 1) and col are of the kept entries. The n entries are those of from_row and from_col,
 * or, if these are NULL, all elements of (o, c). */
void dynmo_cpu_compact_rows(const dynmo_cpu *k, int32_t *row, int32_t *col, const int32_t *from_row,
	const int32_t *from_col, const uint64_t *mask, const int32_t *ranks, int64_t n, int64_t c, int64_t o);

/* Blocks of 32 x 32 of a matrix (32·o, 32·c): all, or with row (32·o + 1) the blocks of its
 * entries. mask or NULL. */
void dynmo_cpu_block_scores(const dynmo_cpu *k, float *scores, const float *w, const uint64_t *mask, const int32_t *row,
	int64_t c, int64_t o);
void dynmo_cpu_block_mask(const dynmo_cpu *k, uint64_t *mask, const uint64_t *blocks, const int32_t *row, int64_t c,
	int64_t o);
/* w (4·n), scores (n); mask or NULL. */
void dynmo_cpu_pair_scores(const dynmo_cpu *k, float *scores, const float *w, const uint64_t *mask, int64_t n);
void dynmo_cpu_pair_mask(const dynmo_cpu *k, uint64_t *kept, const float *w, const uint64_t *mask, const uint64_t *whole,
	int64_t n);

#endif
