/* Dense products otherwise than by the BLAS on the operands themselves. */
#ifndef DYNMO_DENSE_H
#define DYNMO_DENSE_H

#include "dnnl.h"
#include "kernels.h"

/* C (m, n) = op(A)·op(B), plus bias (n) or plus C. Rows of C are n apart. If A is not transposed, B is a
 * matrix of weights. */
struct dynmo_dense {
	int32_t transpose_a, transpose_b;
	int64_t m, n, k;
	const float *a, *b, *bias;
	int64_t lda, ldb;
	float beta, *c;
	int64_t slices; /* of the longer of m and n, in float32 */
};

enum { DYNMO_LINE = 64 };

struct dynmo_memory {
	void *data;
	int64_t bytes;
};

/* The way to make products, and their memory between calls. */
struct dynmo_means {
	int32_t how;         /* DYNMO_CPU_ROUNDED, DYNMO_CPU_EMULATED or DYNMO_CPU_FLOATS */
	int64_t most[2];     /* with FLOATS, most rows of a backward and of a forward product that oneDNN makes */
	int32_t held;        /* weights do not change */
	uint32_t turn;       /* counts the times at which weights began to be held */
	struct known *known;
	int64_t count, room; /* of known */
	struct weights *table;
	int64_t used, places;              /* of the table; places is a power of two */
	struct dynmo_memory a, b, scratch, strips; /* of one call */
};

/* Returns NULL if memory is short. */
struct dynmo_means *dynmo_means_open(int32_t how, int64_t forward, int64_t backward);
void dynmo_means_close(struct dynmo_means *r);
void dynmo_means_hold(struct dynmo_means *r, int32_t hold);

/* Makes memory of at least some bytes. Its content is lost if it grows. */
int32_t dynmo_reserve(struct dynmo_memory *m, int64_t bytes);
/* Finds a product, or makes it. NULL: the library has none, or memory is short. */
const struct dynmo_product *dynmo_means_product(struct dynmo_means *r, const struct dynmo_shape *shape);
/* Says whether a product's rows, cut into strips, have the bits that they have together. It is tried once, on
 * numbers of its own. */
int32_t dynmo_means_alike(struct dynmo_means *r, const struct dynmo_shape *shape, int64_t strip);
/* Sets *rounded to a rounded copy of weights, which is made once while weights are held. */
int32_t dynmo_means_weights(const dynmo_cpu *k, const float *matrix, int64_t elements, const void **rounded);
/* Rounds n floats to bfloat16 numbers, or, emulated, to floats with their values. */
void dynmo_means_copy(const dynmo_cpu *k, void *rounded, const float *x, int64_t n);

/* Says whether oneDNN makes a product, by its shape alone. */
int32_t dynmo_dense_chosen(const dynmo_cpu *k, const struct dynmo_dense *p);
/* Makes a product by oneDNN. m, n and k are above 0. */
int32_t dynmo_dense_multiply(const dynmo_cpu *k, const struct dynmo_dense *p);
/* Sets a and b of a product to rounded copies, which live until the next call. */
int32_t dynmo_dense_copies(const dynmo_cpu *k, struct dynmo_dense *p);
#endif
