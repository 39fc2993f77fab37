/* The C side of src/kernel/cuda: the calls of libdynmo_cuda.so. The whole
 * boundary is this header. The library is opened at run time. Its symbol
 * dynmo_cuda_calls returns a table of functions; DYNMO_CUDA_CALLS is the list of
 * them, for both sides. dynmo doctor reads dynmo_cuda_built and
 * dynmo_cuda_missing (products.cuh).
 *
 * The result and the shapes of a call stand at the method of the same name in
 * src/kernel/kernel.go. Every pointer is device memory of the current context;
 * a call enqueues on stream (a CUstream) and returns 0 or a status that error
 * can name. Shapes were checked by the caller. Three element types appear:
 *
 *   E  activations and weights: float, or bfloat16 (see open)
 *   W  float, always: weight gradients, moments, master weights, mean, rstd, lse
 *   D  double: losses and softmax statistics
 *
 * Sums are made in float or wider, in an order that depends on shapes only: no
 * float atomics, so that equal operands give equal bits. */
#ifndef DYNMO_CUDA_H
#define DYNMO_CUDA_H

#include <stdint.h>

/* Grows with every change of the list below. */
#define DYNMO_CUDA_VERSION 12

enum { DYNMO_CUDA_F32 = 0, DYNMO_CUDA_BF16 = 1 }; /* E */

/* Statuses below 0 are these; CUDA's runtime errors are above 0, cuBLASLt's
 * are 10000 and its status, cuSPARSE's 20000 and its status. */
enum {
	DYNMO_CUDA_ARCH   = -1, /* no code in the library for this GPU */
	DYNMO_CUDA_SHAPE  = -2, /* a shape that no kernel here can do */
	DYNMO_CUDA_ABSENT = -3, /* a library that the call needs cannot be opened */
	DYNMO_CUDA_PATH   = -4  /* DYNMO_CUDA_ATTENTION names kernels that are missing here */
};

typedef struct dynmo_cuda dynmo_cuda; /* handles and workspace of one rank */

/* Calls whose products have algorithms to choose from: matmul_forward without and with
 * add, matmul_gelu, matmul_backward_input, _gelu and _weight. */
enum {
	DYNMO_CUDA_FORWARD,
	DYNMO_CUDA_FORWARD_ADD,
	DYNMO_CUDA_FORWARD_GELU,
	DYNMO_CUDA_BACKWARD_INPUT,
	DYNMO_CUDA_BACKWARD_GELU,
	DYNMO_CUDA_BACKWARD_WEIGHT
};

/* How products of a kind are made. Other devices and other versions of cuBLASLt cannot use it. */
typedef struct {
	int32_t kind[5];
	int32_t plain; /* not by cuBLASLt */
	uint64_t algorithm[8];
} dynmo_cuda_choice;

enum { DYNMO_CUDA_RIVALS = 11 }; /* slots of rivals */

/* A product by NVIDIA's libraries, with W (rows, cols) of nnz entries of type E:
 *
 *   SPMM    out = inp·Wᵀ by cuSPARSE. algorithm: 1 to 3 are CSR_ALG1 to CSR_ALG3, 0 is
 *           the default
 *   SDDMM   values += doutᵀ·inp where W has entries, by cuSPARSE
 *   TF32    out = inp·valuesᵀ by cuBLASLt with values (rows, cols) dense, E float
 *
 * by_rows: inp lies as (cols, n), out and dout as (rows, n). Otherwise they lie as in all other
 * calls, (n, cols) and (n, rows). */
enum { DYNMO_CUDA_RIVAL_SPMM, DYNMO_CUDA_RIVAL_SDDMM, DYNMO_CUDA_RIVAL_TF32 };

typedef struct {
	int32_t product, by_rows, algorithm;
	void *out, *values;
	const void *inp, *dout;
	const int32_t *row, *col;
	int32_t n, rows, cols, nnz;
} dynmo_cuda_rival;

/* X(name, (parameters), (arguments)). n tokens, c channels, o output channels,
 * b sequences of at most `longest` tokens, nh heads, v columns. Operands that may be absent are
 * null then. */
#define DYNMO_CUDA_CALLS(X)                                                                                            \
	/* Readies the current context's device for elements of a type. */                                                \
	X(open, (int32_t type, dynmo_cuda **k), (type, k))                                                                 \
	X(close, (dynmo_cuda *k), (k))                                                                                     \
	/* Writes the name of a status into text, which has room for size bytes. */                                        \
	X(error, (int32_t status, char *text, int32_t size), (status, text, size))                                         \
	/* Writes all that the bits of results depend on: architecture, compiler, cuBLAS. */                                  \
	X(identity, (dynmo_cuda *k, char *text, int32_t size), (k, text, size))                                            \
	/* Lists how the product of a call can be made whose operands are all aligned, at most `most` ways: cuBLASLt's     \
	 * own choice first. biased: with a bias, or its gradient. */                                                      \
	X(candidates, (dynmo_cuda *k, int32_t call, int32_t biased, int32_t n, int32_t c, int32_t o, dynmo_cuda_choice     \
	  *list, int32_t most, int32_t *found), (k, call, biased, n, c, o, list, most, found))                             \
	/* Has products of a kind made so from now on. */                                                                  \
	X(choose, (dynmo_cuda *k, const dynmo_cuda_choice *choice), (k, choice))                                           \
	/* Counts the products so far that cuBLASLt had no algorithm for. */                                               \
	X(fallbacks, (dynmo_cuda *k, int64_t *count), (k, count))                                                          \
                                                                                                                       \
	X(embedding_forward, (dynmo_cuda *k, void *stream, void *out, const int32_t *tokens, const int32_t *positions,     \
	  const void *wte, const void *wpe, int32_t n, int32_t c), (k, stream, out, tokens, positions, wte, wpe, n,        \
	  c))                                                                                                              \
	X(embedding_backward, (dynmo_cuda *k, void *stream, float *dwte, float *dwpe, const void *dout, const int32_t      \
	  *tokens, const int32_t *positions, int32_t n, int32_t c), (k, stream, dwte, dwpe, dout, tokens, positions,       \
	  n, c))                                                                                                           \
                                                                                                                       \
	/* LayerNorm, or RMSNorm where mean is absent, and with it bias or dbias. */                                       \
	X(norm_forward, (dynmo_cuda *k, void *stream, void *out, float *mean, float *rstd, const void *inp,                \
	  const void *weight, const void *bias, int32_t n, int32_t c, double eps),                                         \
	  (k, stream, out, mean, rstd, inp, weight, bias, n, c, eps))                                                      \
	/* dinp = add + …; add may be dinp. */                                                                             \
	X(norm_backward_input, (dynmo_cuda *k, void *stream, void *dinp, const void *add, const void *dout,                \
	  const void *inp, const float *mean, const float *rstd, const void *weight, int32_t n, int32_t c),                \
	  (k, stream, dinp, add, dout, inp, mean, rstd, weight, n, c))                                                     \
	X(norm_backward_weight, (dynmo_cuda *k, void *stream, float *dweight, float *dbias, const void *dout,              \
	  const void *inp, const float *mean, const float *rstd, int32_t n, int32_t c),                                    \
	  (k, stream, dweight, dbias, dout, inp, mean, rstd, n, c))                                                        \
                                                                                                                       \
	/* out = inp·weightᵀ + bias + add; bias and add may be absent. */                                                  \
	X(matmul_forward, (dynmo_cuda *k, void *stream, void *out, const void *inp, const void *weight, const void *bias,  \
	  const void *add, int32_t n, int32_t c, int32_t o), (k, stream, out, inp, weight, bias, add, n, c, o))            \
	/* pre = inp·weightᵀ + bias, out = gelu(pre); bf16 only. */                                                        \
	X(matmul_gelu, (dynmo_cuda *k, void *stream, void *out, void *pre, const void *inp, const void *weight,            \
	  const void *bias, int32_t n, int32_t c, int32_t o), (k, stream, out, pre, inp, weight, bias, n, c, o))           \
	X(matmul_backward_input, (dynmo_cuda *k, void *stream, void *dinp, const void *dout, const void *weight,           \
	  int32_t n, int32_t c, int32_t o), (k, stream, dinp, dout, weight, n, c, o))                                      \
	/* dpre (n, c) = (dout·weight)·gelu'(pre); bf16 only. */                                                           \
	X(matmul_backward_gelu, (dynmo_cuda *k, void *stream, void *dpre, const void *dout, const void *weight,            \
	  const void *pre, int32_t n, int32_t c, int32_t o), (k, stream, dpre, dout, weight, pre, n, c, o))                \
	X(matmul_backward_weight, (dynmo_cuda *k, void *stream, float *dweight, float *dbias, const void *dout,            \
	  const void *inp, int32_t n, int32_t c, int32_t o), (k, stream, dweight, dbias, dout, inp, n, c, o))              \
                                                                                                                       \
	/* A sparse matrix (rows, cols) has nnz entries: row (rows+1), col (nnz), values (nnz); */                         \
	/* blocks says that they are whole blocks of 32 x 32. */                                                           \
	X(spmm_forward, (dynmo_cuda *k, void *stream, void *out, const void *inp, const int32_t *row, const int32_t *col,  \
	  const void *values, const void *bias, int32_t n, int32_t rows, int32_t cols, int32_t nnz, int32_t blocks),       \
	  (k, stream, out, inp, row, col, values, bias, n, rows, cols, nnz, blocks))                                       \
	X(spmm_backward_input, (dynmo_cuda *k, void *stream, void *dinp, const void *dout, const int32_t *row,             \
	  const int32_t *col, const void *values, int32_t n, int32_t rows, int32_t cols, int32_t nnz, int32_t blocks),     \
	  (k, stream, dinp, dout, row, col, values, n, rows, cols, nnz, blocks))                                           \
	X(sddmm, (dynmo_cuda *k, void *stream, float *dvalues, float *dbias, const void *dout, const void *inp,            \
	  const int32_t *row, const int32_t *col, int32_t n, int32_t rows, int32_t cols, int32_t nnz, int32_t blocks),     \
	  (k, stream, dvalues, dbias, dout, inp, row, col, n, rows, cols, nnz, blocks))                                    \
	/* Rivals that sparse products are compared with. prepare puts one into a slot, for */                                 \
	/* operands that stay where they are, run enqueues it, forget empties all slots. */                                \
	X(rival_prepare, (dynmo_cuda *k, void *stream, int32_t slot, const dynmo_cuda_rival *p), (k, stream, slot, p))     \
	X(rival_run, (dynmo_cuda *k, void *stream, int32_t slot), (k, stream, slot))                                       \
	X(rival_forget, (dynmo_cuda *k), (k))                                                                              \
                                                                                                                       \
	/* Rotates `heads` heads of hs channels of rows of width; a row of table is hs floats. */                          \
	X(rotary, (dynmo_cuda *k, void *stream, void *qkv, const int32_t *positions, const float *table, int32_t n,        \
	  int32_t heads, int32_t width, int32_t hs, int32_t inverse),                                                      \
	  (k, stream, qkv, positions, table, n, heads, width, hs, inverse))                                                \
	/* kv of the nh heads have keys and values. */                                                                     \
	X(attention_forward, (dynmo_cuda *k, void *stream, void *out, float *lse, const void *qkv, const int32_t           \
	  *offsets, int32_t b, int32_t longest, int32_t n, int32_t c, int32_t nh, int32_t kv),                             \
	  (k, stream, out, lse, qkv, offsets, b, longest, n, c, nh, kv))                                                   \
	X(attention_backward, (dynmo_cuda *k, void *stream, void *dqkv, const void *dout, const void *qkv, const void      \
	  *out, const float *lse, const int32_t *offsets, int32_t b, int32_t longest, int32_t n, int32_t c, int32_t        \
	  nh, int32_t kv), (k, stream, dqkv, dout, qkv, out, lse, offsets, b, longest, n, c, nh, kv))                      \
	/* order (2·nh·n), starts (b, nh, 2, buckets + 1), pairs (2) of D, projections (nh, buckets/2, c/nh). */           \
	X(attention_hash, (dynmo_cuda *k, void *stream, int32_t *order, int32_t *starts, double *pairs, const void *qkv,   \
	  const int32_t *offsets, const float *projections, int32_t shared, int32_t buckets, int32_t b, int32_t longest,   \
	  int32_t n, int32_t c, int32_t nh), (k, stream, order, starts, pairs, qkv, offsets, projections, shared, buckets, \
	  b, longest, n, c, nh))                                                                                           \
	/* qkv (n, 3c), qv (n, 2c). */                                                                                     \
	X(share_keys, (dynmo_cuda *k, void *stream, void *qkv, const void *qv, int32_t n, int32_t c, int32_t nh),          \
	  (k, stream, qkv, qv, n, c, nh))                                                                                  \
	X(share_keys_gradient, (dynmo_cuda *k, void *stream, void *dqv, const void *dqkv, const void *qkv, int32_t n,      \
	  int32_t c, int32_t nh), (k, stream, dqv, dqkv, qkv, n, c, nh))                                                   \
	X(sparse_attention_forward, (dynmo_cuda *k, void *stream, void *out, float *lse, const void *qkv, const int32_t    \
	  *offsets, const int32_t *order, const int32_t *starts, int32_t buckets, int32_t b, int32_t longest, int32_t n,   \
	  int32_t c, int32_t nh), (k, stream, out, lse, qkv, offsets, order, starts, buckets, b, longest, n, c, nh))       \
	X(sparse_attention_backward, (dynmo_cuda *k, void *stream, void *dqkv, const void *dout, const void *qkv, const    \
	  void *out, const float *lse, const int32_t *offsets, const int32_t *order, const int32_t *starts, int32_t buckets, \
	  int32_t b, int32_t longest, int32_t n, int32_t c, int32_t nh), (k, stream, dqkv, dout, qkv, out, lse, offsets,   \
	  order, starts, buckets, b, longest, n, c, nh))                                                                   \
                                                                                                                       \
	X(gelu_forward, (dynmo_cuda *k, void *stream, void *out, const void *inp, int64_t n), (k, stream, out, inp, n))    \
	X(gelu_backward, (dynmo_cuda *k, void *stream, void *dinp, const void *inp, const void *dout, int64_t n),          \
	  (k, stream, dinp, inp, dout, n))                                                                                 \
	X(swiglu_forward, (dynmo_cuda *k, void *stream, void *out, const void *gateup, int32_t n, int32_t c),              \
	  (k, stream, out, gateup, n, c))                                                                                  \
	X(swiglu_backward, (dynmo_cuda *k, void *stream, void *dgateup, const void *dout, const void *gateup, int32_t n,   \
	  int32_t c), (k, stream, dgateup, dout, gateup, n, c))                                                            \
	X(add, (dynmo_cuda *k, void *stream, void *out, const void *a, const void *b, int64_t n), (k, stream, out, a, b, n)) \
	X(accumulate, (dynmo_cuda *k, void *stream, float *out, const float *a, const float *b, int64_t n),                \
	  (k, stream, out, a, b, n))                                                                                       \
	/* out and b are bfloat16; a may be absent. */                                                                     \
	X(round, (dynmo_cuda *k, void *stream, void *out, const float *x, int64_t n), (k, stream, out, x, n))              \
	X(accumulate_rounded, (dynmo_cuda *k, void *stream, float *out, const float *a, const void *b, int64_t n),         \
	  (k, stream, out, a, b, n))                                                                                       \
	/* sum and other (n + 2): numbers in units of 2^-50, a bound on their absolute values, and a word that is 0. */    \
	X(accumulate_fixed, (dynmo_cuda *k, void *stream, int64_t *sum, const float *x, int64_t n), (k, stream, sum, x, n)) \
	X(add_fixed, (dynmo_cuda *k, void *stream, int64_t *sum, const int64_t *other, int64_t n), (k, stream, sum, other, n)) \
	X(round_fixed, (dynmo_cuda *k, void *stream, float *out, const int64_t *sum, int64_t n), (k, stream, out, sum, n)) \
                                                                                                                       \
	X(softmax_merge, (dynmo_cuda *k, void *stream, double *out, const double *before, const void *logits,              \
	  const int32_t *targets, int32_t n, int32_t v, int32_t first), (k, stream, out, before, logits, targets, n, v, first)) \
	X(softmax_gradient, (dynmo_cuda *k, void *stream, void *logits, const double *stats, const int32_t *targets,       \
	  double scale, int32_t n, int32_t v, int32_t first), (k, stream, logits, stats, targets, scale, n, v, first))     \
	X(cross_entropy, (dynmo_cuda *k, void *stream, double *loss, double *out, const double *before, void *logits,      \
	  const int32_t *targets, double scale, int32_t n, int32_t v, int32_t first),                                      \
	  (k, stream, loss, out, before, logits, targets, scale, n, v, first))                                             \
	X(likeliest, (dynmo_cuda *k, void *stream, int32_t *out, const void *logits, int32_t n, int32_t v),                \
	  (k, stream, out, logits, n, v))                                                                                  \
                                                                                                                       \
	/* rows (n) are different rows of a table; factor may be absent but in the last. */                                \
	X(gather_rows, (dynmo_cuda *k, void *stream, void *out, const void *inp, const int32_t *rows, const float *factor, \
	  int32_t n, int32_t c), (k, stream, out, inp, rows, factor, n, c))                                                \
	X(scatter_rows, (dynmo_cuda *k, void *stream, void *out, const void *add, const int32_t *rows, const float *keep,  \
	  const float *factor, int32_t n, int32_t c), (k, stream, out, add, rows, keep, factor, n, c))                     \
	X(gate_gradient, (dynmo_cuda *k, void *stream, void *dlogits, const void *dout, const void *a, const void *b,      \
	  const int32_t *rows, const float *factor, int32_t n, int32_t c),                                                 \
	  (k, stream, dlogits, dout, a, b, rows, factor, n, c))                                                            \
	/* Sums of `each` rows of inp, and add; rows (n, each), negative ones absent; factor and add may be. */            \
	X(combine_rows, (dynmo_cuda *k, void *stream, void *out, const void *inp, const int32_t *rows, const float *factor, \
	  const void *add, int32_t n, int32_t each, int32_t c), (k, stream, out, inp, rows, factor, add, n, each, c))      \
	X(combine_gradient, (dynmo_cuda *k, void *stream, float *dfactor, const void *dout, const void *inp,               \
	  const int32_t *rows, int32_t n, int32_t each, int32_t c), (k, stream, dfactor, dout, inp, rows, n, each, c))     \
                                                                                                                       \
	/* Tokens that a routed block takes: readings of D (5); guesses and dguesses may be absent. */                     \
	X(take_tokens, (dynmo_cuda *k, void *stream, int32_t *taken, double *readings, void *dlogits, void *dguesses,      \
	  const void *logits, const void *guesses, const int32_t *offsets, int32_t n, int32_t b, double capacity,          \
	  double threshold, double router, double predictor), (k, stream, taken, readings, dlogits, dguesses, logits,      \
	  guesses, offsets, n, b, capacity, threshold, router, predictor))                                                 \
	X(list_tokens, (dynmo_cuda *k, void *stream, int32_t *rows, float *factors, int32_t *listed, int32_t *ends,        \
	  const int32_t *taken, const void *logits, const int32_t *positions, const int32_t *offsets, int32_t n, int32_t b, \
	  int32_t places, int32_t one), (k, stream, rows, factors, listed, ends, taken, logits, positions, offsets, n, b,  \
	  places, one))                                                                                                    \
	/* Choices of experts: router of D (2, n, experts), readings of D (4 + experts); logits and scores may be absent. */ \
	X(squash_logits, (dynmo_cuda *k, void *stream, double *router, void *squashed, const void *inp, const void *weight, \
	  int32_t n, int32_t experts), (k, stream, router, squashed, inp, weight, n, experts))                            \
	X(squash_gradient, (dynmo_cuda *k, void *stream, void *dinp, const void *dout, const void *inp,                   \
	  const void *weight, int32_t n, int32_t experts), (k, stream, dinp, dout, inp, weight, n, experts))              \
	X(balance_scores, (dynmo_cuda *k, void *stream, double *router, const void *logits, double deviation,             \
	  int32_t rounds, int32_t n, int32_t experts), (k, stream, router, logits, deviation, rounds, n, experts))        \
	X(route_tokens, (dynmo_cuda *k, void *stream, int32_t *chosen, float *weights, double *router, double *readings,  \
	  const void *logits, const double *scores, int32_t n, int32_t experts, int32_t top, int32_t room, int32_t shares,\
	  double scale, double auxiliary, double z), (k, stream, chosen, weights, router, readings, logits, scores, n,    \
	  experts, top, room, shares, scale, auxiliary, z))                                                               \
	X(route_gradient, (dynmo_cuda *k, void *stream, void *dlogits, const float *dweights, const int32_t *chosen,      \
	  const double *router, int32_t n, int32_t experts, int32_t top, double scale, double loss),                      \
	  (k, stream, dlogits, dweights, chosen, router, n, experts, top, scale, loss))                                   \
	X(place_tokens, (dynmo_cuda *k, void *stream, int32_t *places, int32_t *tokens, float *factors, int32_t *ends,    \
	  const int32_t *chosen, const float *weights, int32_t n, int32_t experts, int32_t top, int32_t first),           \
	  (k, stream, places, tokens, factors, ends, chosen, weights, n, experts, top, first))                            \
	/* Products of rows [ends[e], ends[e+1]) by matrix e, (o, c), at element e·stride. */                             \
	X(grouped_forward, (dynmo_cuda *k, void *stream, void *out, const void *inp, const void *weights,                 \
	  const int32_t *ends, int32_t n, int32_t c, int32_t o, int32_t experts, int64_t stride),                         \
	  (k, stream, out, inp, weights, ends, n, c, o, experts, stride))                                                 \
	X(grouped_backward_input, (dynmo_cuda *k, void *stream, void *dinp, const void *dout, const void *weights,        \
	  const int32_t *ends, int32_t n, int32_t c, int32_t o, int32_t experts, int64_t stride),                         \
	  (k, stream, dinp, dout, weights, ends, n, c, o, experts, stride))                                               \
	X(grouped_backward_weight, (dynmo_cuda *k, void *stream, float *dweights, const void *dout, const void *inp,      \
	  const int32_t *ends, int32_t n, int32_t c, int32_t o, int32_t experts, int64_t stride),                         \
	  (k, stream, dweights, dout, inp, ends, n, c, o, experts, stride))                                               \
                                                                                                                       \
	X(sum_squares, (dynmo_cuda *k, void *stream, double *out, const float *x, int64_t n), (k, stream, out, x, n))      \
	/* w (E) and, unless E is float, its master in float. The first decayed elements decay. */                         \
	X(adamw, (dynmo_cuda *k, void *stream, void *w, float *master, float *m, float *v, const float *g, int64_t n,      \
	  int64_t decayed, double lr, double beta1, double beta2, double eps, double decay, double scale, int32_t step),   \
	  (k, stream, w, master, m, v, g, n, decayed, lr, beta1, beta2, eps, decay, scale, step))                          \
	X(mask_weights, (dynmo_cuda *k, void *stream, void *x, const uint64_t *mask, int64_t n), (k, stream, x, mask, n))     \
	/* kept and mask of n bits; mask may be absent. ranks has one more than the mask has words. */                        \
	X(select_largest, (dynmo_cuda *k, void *stream, uint64_t *kept, const float *x, const uint64_t *mask, int64_t n,      \
	  uint32_t threshold, int64_t ties), (k, stream, kept, x, mask, n, threshold, ties))                                  \
	X(mask_ranks, (dynmo_cuda *k, void *stream, int32_t *ranks, const uint64_t *mask, int64_t n),                         \
	  (k, stream, ranks, mask, n))                                                                                        \
	X(compact, (dynmo_cuda *k, void *stream, void *out, const void *inp, const uint64_t *mask, const int32_t *ranks,      \
	  int64_t n), (k, stream, out, inp, mask, ranks, n))                                                                  \
	X(compact_wide, (dynmo_cuda *k, void *stream, float *out, const float *inp, const uint64_t *mask,                     \
	  const int32_t *ranks, int64_t n), (k, stream, out, inp, mask, ranks, n))                                            \
	/* row (o+1) and col of the kept ones of the entries of from_row and from_col, absent of a dense (o, c). */           \
	X(compact_rows, (dynmo_cuda *k, void *stream, int32_t *row, int32_t *col, const int32_t *from_row,                    \
	  const int32_t *from_col, const uint64_t *mask, const int32_t *ranks, int32_t o, int32_t c),                         \
	  (k, stream, row, col, from_row, from_col, mask, ranks, o, c))                                                       \
	/* nnz blocks of 32 x 32 of (32·o, 32·c): with row (32·o+1) those that are its entries. mask may be absent. */        \
	X(block_scores, (dynmo_cuda *k, void *stream, float *scores, const float *w, const uint64_t *mask, const int32_t *row, \
	  int32_t c, int32_t o, int32_t nnz), (k, stream, scores, w, mask, row, c, o, nnz))                                   \
	X(block_mask, (dynmo_cuda *k, void *stream, uint64_t *mask, const uint64_t *blocks, const int32_t *row, int32_t c,    \
	  int32_t o, int32_t nnz), (k, stream, mask, blocks, row, c, o, nnz))                                                 \
	/* w (4·n), scores (n); mask may be absent. */                                                                        \
	X(pair_scores, (dynmo_cuda *k, void *stream, float *scores, const float *w, const uint64_t *mask, int64_t n),         \
	  (k, stream, scores, w, mask, n))                                                                                    \
	X(pair_mask, (dynmo_cuda *k, void *stream, uint64_t *kept, const float *w, const uint64_t *mask,                      \
	  const uint64_t *whole, int64_t n), (k, stream, kept, w, mask, whole, n))                                            \
	X(mask, (dynmo_cuda *k, void *stream, float *x, const uint64_t *mask, int64_t n), (k, stream, x, mask, n))         \
	X(magnitude_histogram, (dynmo_cuda *k, void *stream, int64_t *hist, const float *x, const uint64_t *mask,          \
	  int64_t n, uint32_t prefix, int32_t fixed), (k, stream, hist, x, mask, n, prefix, fixed))

#define DYNMO_CUDA_MEMBER(name, parameters, arguments) int32_t(*name) parameters;
typedef struct {
	int32_t version; /* DYNMO_CUDA_VERSION */
	DYNMO_CUDA_CALLS(DYNMO_CUDA_MEMBER)
} dynmo_cuda_table;
#undef DYNMO_CUDA_MEMBER

#ifdef __cplusplus
extern "C"
#endif
const dynmo_cuda_table *dynmo_cuda_calls(void);

#endif
