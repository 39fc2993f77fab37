/* Products of matrices by oneDNN, on the thread that calls. oneDNN is opened at run time: its file is
 * named otherwise in each release, and few hosts need it. */
#ifndef DYNMO_DNNL_H
#define DYNMO_DNNL_H

#include <stdint.h>

/* C (m, n) = A (m, k) · B (k, n), plus bias (n) or plus C. A and B are bfloat16, or, wide, float32. Sums
 * are float32. */
struct dynmo_shape {
	int64_t m, n, k;
	int64_t lda, ldb, ldc; /* elements from row to row, or from column to column where a matrix is transposed */
	int32_t transpose_a, transpose_b;
	int32_t bias, add; /* plus bias; plus C */
	int64_t wide;
};

/* The code of a product of one shape. */
struct dynmo_product;

/* Opens the library. Returns NULL, or why it cannot be used. */
const char *dynmo_dnnl_open(void);
/* Says whether the open library makes products of bfloat16 or, wide, of float32 with the instructions that it takes. */
int32_t dynmo_dnnl_multiplies(int32_t wide);
/* The library's name, version and instructions, "" before it is open. */
const char *dynmo_dnnl_name(void);
/* Says whether a product that adds to C takes longer than one that does not, with an addition after it. It does
 * since version 3. */
int32_t dynmo_dnnl_adds_slowly(void);
/* Returns a product, NULL if the library has none or memory is short. */
struct dynmo_product *dynmo_dnnl_product(const struct dynmo_shape *shape);
void dynmo_dnnl_free(struct dynmo_product *p);
/* Bytes of the scratch memory of a call. */
int64_t dynmo_dnnl_scratch(const struct dynmo_product *p);
/* Returns 0 or the library's status. */
int32_t dynmo_dnnl_multiply(const struct dynmo_product *p, void *scratch, float *c, const void *a, const void *b,
	const float *bias);

#endif
