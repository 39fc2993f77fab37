/* Dense products over the BLAS (cblas_sgemm), with biases. */
#include "kernels.h"

/* CBLAS, declared here so that no header's location matters. The enumerations
 * are the standard's (BLAS Technical Forum, 2001, annex C). */
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
extern void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
	const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);

void dynmo_sgemm(int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k, float alpha,
	const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
	if (m == 0 || n == 0)
		return;
	cblas_sgemm(ROW_MAJOR, transpose_a ? TRANS : NO_TRANS, transpose_b ? TRANS : NO_TRANS, (int)m, (int)n,
		(int)k, alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
}

/* The bias goes into out first: then the product adds to it in the pass over
 * out that a product makes anyway. */
void dynmo_cpu_matmul_forward(const dynmo_cpu *k, float *out, const float *inp, const float *weight,
	const float *bias, int64_t n, int64_t c, int64_t o)
{
	(void)k;
	if (bias)
		for (int64_t i = 0; i < n; i++)
			memcpy(out + i * o, bias, (size_t)o * sizeof *out);
	dynmo_sgemm(0, 1, n, o, c, 1, inp, c, weight, c, bias ? 1 : 0, out, o);
}

void dynmo_cpu_matmul_backward_input(const dynmo_cpu *k, float *dinp, const float *dout, const float *weight,
	int64_t n, int64_t c, int64_t o)
{
	(void)k;
	dynmo_sgemm(0, 0, n, c, o, 1, dout, o, weight, c, 0, dinp, c);
}

void dynmo_cpu_matmul_backward_weight(const dynmo_cpu *k, float *dweight, float *dbias, const float *dout,
	const float *inp, int64_t n, int64_t c, int64_t o)
{
	if (dbias)
		k->column_sums(dbias, dout, n, o);
	dynmo_sgemm(1, 0, o, c, n, 1, dout, o, inp, c, 1, dweight, c);
}
