/* Dense products over the BLAS (cblas_sgemm and cblas_sgemv), with biases. The BLAS works on
 * the thread that calls it; a team shares the slices of a product. Slices cut
 * the longer side of the result, because the BLAS packs the operand of the
 * other side anew for every slice. The number of slices follows from the shape
 * alone: the place of an element in a slice may decide the order of its sum.
 * So one thread computes the same slices as many threads do. */
#include "dense.h"

/* CBLAS, declared here so that no header's location matters. The enumerations
 * are the standard's (BLAS Technical Forum, 2001, annex C). */
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
extern void cblas_sgemv(int order, int transpose, int m, int n, float alpha, const float *a, int lda,
	const float *x, int incx, float beta, float *y, int incy);
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

enum {
	TILES = 192, /* a slice is whole tiles of the BLAS's kernels; the last one has the rest of the side too */
	WIDTH = 144, /* times the slices: the least width of one, so that packing the other side pays */
	SLICES = 16, /* most slices, and so most threads that share a product; a power of two */
	SLICE = 1 << 22, /* least multiplications of a slice */
	SHARE = 1 << 15, /* floats of a matrix that one row meets at a time: they stay in a cache */
};

/* The bias goes into C first: then the product adds to it in the pass over C
 * that a product makes anyway. */
static void multiply_slice(const struct dynmo_dense *p, int64_t slice)
{
	int by_rows = p->m > p->n;
	int64_t side = by_rows ? p->m : p->n, tiles = side / TILES;
	int64_t begin = slice * tiles / p->slices * TILES;
	int64_t end = slice + 1 == p->slices ? side : (slice + 1) * tiles / p->slices * TILES;
	int64_t row = by_rows ? begin : 0, rows = by_rows ? end - begin : p->m;
	int64_t column = by_rows ? 0 : begin, columns = by_rows ? p->n : end - begin;
	float *c = p->c + row * p->n + column;
	if (p->bias)
		for (int64_t i = 0; i < rows; i++)
			memcpy(c + i * p->n, p->bias + column, (size_t)columns * sizeof *c);
	dynmo_sgemm(p->transpose_a, p->transpose_b, rows, columns, p->k, 1,
		p->a + row * (p->transpose_a ? 1 : p->lda), p->lda,
		p->b + column * (p->transpose_b ? p->ldb : 1), p->ldb, p->beta, c, p->n);
}

/* Items are slices. */
static void multiply(const void *job, int64_t first, int64_t last)
{
	for (int64_t slice = first; slice < last; slice++)
		multiply_slice(job, slice);
}

static int32_t share(const dynmo_cpu *k, struct dynmo_dense *p)
{
	if (dynmo_dense_chosen(k, p))
		return dynmo_dense_multiply(k, p);
	if (k->means && k->means->how == DYNMO_CPU_EMULATED) {
		int32_t status = dynmo_dense_copies(k, p);
		if (status != DYNMO_CPU_OK)
			return status;
	}
	int64_t side = p->m > p->n ? p->m : p->n;
	int64_t multiplications = p->m * p->n * p->k;
	for (p->slices = SLICES; p->slices > 1; p->slices /= 2)
		if (side >= WIDTH * p->slices * p->slices && multiplications >= SLICE * p->slices)
			break;
	dynmo_parallel(k->team, p->slices, 1, multiply, p);
	return DYNMO_CPU_OK;
}

/* Rows of B that one row of A meets at a time. */
static int64_t met(const struct dynmo_dense *p) { return p->k < SHARE ? SHARE / p->k : 1; }

/* A product of one row. Items are slices of B. A product of matrices would pack B first. */
static void multiply_row(const void *job, int64_t first, int64_t last)
{
	const struct dynmo_dense *p = job;
	for (int64_t slice = first; slice < last; slice++) {
		int64_t begin = slice * met(p), rows = dynmo_min(met(p), p->n - begin);
		if (p->bias)
			memcpy(p->c + begin, p->bias + begin, (size_t)rows * sizeof *p->c);
		cblas_sgemv(ROW_MAJOR, NO_TRANS, (int)rows, (int)p->k, 1, p->b + begin * p->ldb, (int)p->ldb, p->a, 1,
			p->beta, p->c + begin, 1);
	}
}

int32_t dynmo_cpu_matmul_forward(const dynmo_cpu *k, float *out, const float *inp, const float *weight,
	const float *bias, int64_t n, int64_t c, int64_t o)
{
	struct dynmo_dense p = {.m = n, .n = o, .k = c, .a = inp, .lda = c, .transpose_b = 1, .b = weight, .ldb = c,
		.bias = bias, .beta = bias ? 1 : 0, .c = out};
	if (k->vectors && n == 1 && c > 0)
		return dynmo_parallel(k->team, (o + met(&p) - 1) / met(&p), 1, multiply_row, &p), DYNMO_CPU_OK;
	return share(k, &p);
}

int32_t dynmo_cpu_matmul_backward_input(const dynmo_cpu *k, float *dinp, const float *dout, const float *weight,
	int64_t n, int64_t c, int64_t o)
{
	return share(k, &(struct dynmo_dense){.m = n, .n = c, .k = o, .a = dout, .lda = o, .b = weight, .ldb = c, .c = dinp});
}

int32_t dynmo_cpu_matmul_backward_weight(const dynmo_cpu *k, float *dweight, float *dbias, const float *dout,
	const float *inp, int64_t n, int64_t c, int64_t o)
{
	if (dbias)
		dynmo_column_sums(k, dbias, dout, n, o);
	return share(k, &(struct dynmo_dense){.m = o, .n = c, .k = n, .transpose_a = 1, .a = dout, .lda = o, .b = inp, .ldb = c,
		.beta = 1, .c = dweight});
}

void dynmo_cpu_sgemm(int32_t threads, float *c, const float *a, const float *b, int64_t n)
{
	dynmo_blas_threads(threads);
	dynmo_sgemm(0, 1, n, n, n, 1, a, n, b, n, 0, c, n);
	dynmo_blas_threads(1);
}
