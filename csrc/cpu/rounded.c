/* Dense products of operands that are rounded to bfloat16, with sums in float32: by oneDNN, or, emulated,
 * by the BLAS on rounded copies.
 *
 * oneDNN makes code for each shape, and bits may depend on the shape. So a product is cut into parts of a
 * few heights and depths, which follow from its own shape alone. What is missing to a whole part is 0. */
#include "rounded.h"

enum {
	ROWS = 128, LEAST_ROWS = 16,   /* of A in a part of a product with weights: powers of two */
	DEPTH = 512, LEAST_DEPTH = 32, /* of a part of a gradient of weights: powers of two */
	HEIGHT = 384,                  /* rows of such a part, up to twice as many in the last one */
};

struct rounding {
	const dynmo_cpu *k;
	const float *x;
	void *rounded;
};

static void to_bfloat16(const void *job, int64_t first, int64_t last)
{
	const struct rounding *r = job;
	r->k->to_bfloat16((uint16_t *)r->rounded + first, r->x + first, last - first);
}

static void to_float(const void *job, int64_t first, int64_t last)
{
	const struct rounding *r = job;
	uint16_t half[DYNMO_LINE];
	for (int64_t i = first; i < last; i += DYNMO_LINE) {
		int64_t n = dynmo_min(DYNMO_LINE, last - i);
		r->k->to_bfloat16(half, r->x + i, n);
		r->k->add_bfloat16((float *)r->rounded + i, NULL, half, n);
	}
}

void dynmo_rounded_copy(const dynmo_cpu *k, void *rounded, const float *x, int64_t n)
{
	struct rounding r = {k, x, rounded};
	dynmo_parallel(k->team, n, GRAIN, k->rounded->emulated ? to_float : to_bfloat16, &r);
}

/* Rounds n floats into memory with room for `room` numbers. Those behind the n are 0. */
static int32_t rounded(const dynmo_cpu *k, struct dynmo_memory *m, const float *x, int64_t n, int64_t room)
{
	int64_t size = k->rounded->emulated ? sizeof(float) : sizeof(uint16_t);
	int32_t status = dynmo_reserve(m, room * size);
	if (status != DYNMO_CPU_OK)
		return status;
	dynmo_rounded_copy(k, m->data, x, n);
	memset((char *)m->data + n * size, 0, (size_t)((room - n) * size));
	return DYNMO_CPU_OK;
}

int32_t dynmo_rounded_copies(const dynmo_cpu *k, struct dynmo_dense *p)
{
	struct dynmo_rounded *r = k->rounded;
	const void *b = NULL;
	int32_t status = rounded(k, &r->a, p->a, p->m * p->k, p->m * p->k);
	if (status == DYNMO_CPU_OK && p->transpose_a)
		status = rounded(k, &r->b, p->b, p->k * p->n, p->k * p->n);
	else if (status == DYNMO_CPU_OK)
		status = dynmo_rounded_weights(k, p->b, p->k * p->n, &b);
	p->a = r->a.data;
	p->b = p->transpose_a ? r->b.data : b;
	return status;
}

static int64_t up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/* Returns the number of parts of a length: as many of the largest size as fit, then smaller powers of two
 * that make up the rest, rounded up to whole parts of the least size. */
static int64_t parts(int64_t length, int64_t largest, int64_t least)
{
	return length / largest + __builtin_popcountll((uint64_t)up(length % largest, least));
}

/* Sets *size to the size of part i, and returns its first number. */
static int64_t part(int64_t length, int64_t largest, int64_t least, int64_t i, int64_t *size)
{
	int64_t whole = length / largest, first = whole * largest, rest = up(length % largest, least);
	*size = largest;
	if (i < whole)
		return i * largest;
	for (int64_t bit = largest;; bit /= 2) {
		if (!(rest & bit))
			continue;
		*size = bit;
		if (i-- == whole)
			return first;
		first += bit;
	}
}

/* A call that members of the team share. */
struct call {
	const dynmo_cpu *k;
	const struct dynmo_dense *p;
	const struct dynmo_product *products[16]; /* by the logarithm of the size of a part */
	const struct dynmo_product *last[16];     /* of the last slice */
	const uint16_t *a, *b;
	float *tail; /* the last part of C, where it is longer than C */
	char *scratch;
	int64_t scratch_bytes; /* of a member */
	int32_t status;
};

static int log_of(int64_t size) { return __builtin_ctzll((uint64_t)size); }

static void multiply(struct call *c, const struct dynmo_product *product, float *out, const uint16_t *a, const uint16_t *b)
{
	char *scratch = c->scratch + dynmo_team_member() * c->scratch_bytes;
	if (dynmo_dnnl_multiply(product, scratch, out, a, b, c->p->bias) != 0)
		__atomic_store_n(&c->status, DYNMO_CPU_DNNL, __ATOMIC_RELAXED);
}

/* Finds a product and makes room for its scratch memory. */
static const struct dynmo_product *need(struct call *c, const struct dynmo_shape *shape)
{
	const struct dynmo_product *product = dynmo_rounded_product(c->k->rounded, shape);
	if (product == NULL) {
		c->status = DYNMO_CPU_DNNL;
		return NULL;
	}
	int64_t bytes = up(dynmo_dnnl_scratch(product), DYNMO_LINE);
	if (bytes > c->scratch_bytes)
		c->scratch_bytes = bytes;
	return product;
}

static int32_t reserve_scratch(struct call *c)
{
	struct dynmo_memory *m = &c->k->rounded->scratch;
	int32_t status = dynmo_reserve(m, c->scratch_bytes * dynmo_team_size(c->k->team) + DYNMO_LINE);
	c->scratch = m->data;
	return status;
}

static void rows(const void *job, int64_t first, int64_t last)
{
	struct call *c = (struct call *)(uintptr_t)job;
	const struct dynmo_dense *p = c->p;
	for (int64_t i = first; i < last; i++) {
		int64_t size, row = part(p->m, ROWS, LEAST_ROWS, i, &size);
		float *out = row + size > p->m ? c->tail : p->c + row * p->n;
		multiply(c, c->products[log_of(size)], out, c->a + row * p->k, c->b);
		if (out == c->tail)
			memcpy(p->c + row * p->n, out, (size_t)((p->m - row) * p->n) * sizeof *out);
	}
}

/* The parts are rows of C. */
static int32_t multiply_weights(const dynmo_cpu *k, const struct dynmo_dense *p)
{
	struct dynmo_rounded *r = k->rounded;
	struct call c = {.k = k, .p = p};
	struct dynmo_shape shape = {.n = p->n, .k = p->k, .lda = p->k, .ldb = p->ldb, .ldc = p->n,
		.transpose_b = p->transpose_b, .bias = p->bias != NULL};
	int64_t count = parts(p->m, ROWS, LEAST_ROWS), last;
	part(p->m, ROWS, LEAST_ROWS, count - 1, &last);
	for (int64_t i = count - 1; i >= 0 && c.status == DYNMO_CPU_OK; i--) {
		part(p->m, ROWS, LEAST_ROWS, i, &shape.m);
		if (c.products[log_of(shape.m)])
			break; /* as all before it */
		c.products[log_of(shape.m)] = need(&c, &shape);
	}
	const void *b = NULL;
	if (c.status == DYNMO_CPU_OK)
		c.status = dynmo_rounded_weights(k, p->b, p->k * p->n, &b);
	if (c.status == DYNMO_CPU_OK)
		c.status = dynmo_reserve(&r->tail, last * p->n * (int64_t)sizeof *c.tail);
	if (c.status == DYNMO_CPU_OK)
		c.status = rounded(k, &r->a, p->a, p->m * p->k, up(p->m, LEAST_ROWS) * p->k);
	if (c.status == DYNMO_CPU_OK)
		c.status = reserve_scratch(&c);
	if (c.status != DYNMO_CPU_OK)
		return c.status;
	c.a = r->a.data;
	c.b = b;
	c.tail = r->tail.data;
	dynmo_parallel(k->team, count, 1, rows, &c);
	return c.status;
}

/* Slices of a gradient of weights: rows of C. */
static int64_t slices(const struct dynmo_dense *p) { return p->m < 2 * HEIGHT ? 1 : p->m / HEIGHT; }

static void depths(const void *job, int64_t first, int64_t last)
{
	struct call *c = (struct call *)(uintptr_t)job;
	const struct dynmo_dense *p = c->p;
	int64_t count = parts(p->k, DEPTH, LEAST_DEPTH), size;
	for (int64_t slice = first; slice < last; slice++) {
		const struct dynmo_product *const *products = slice + 1 == slices(p) ? c->last : c->products;
		for (int64_t i = 0; i < count; i++) {
			int64_t depth = part(p->k, DEPTH, LEAST_DEPTH, i, &size);
			multiply(c, products[log_of(size)], p->c + slice * HEIGHT * p->n, c->a + depth * p->m + slice * HEIGHT,
				c->b + depth * p->n);
		}
	}
}

/* A gradient of weights: C += Aᵀ·B. The parts are rows of A and B, slice by slice of C. */
static int32_t multiply_gradients(const dynmo_cpu *k, const struct dynmo_dense *p)
{
	struct dynmo_rounded *r = k->rounded;
	struct call c = {.k = k, .p = p};
	struct dynmo_shape shape = {.n = p->n, .lda = p->m, .ldb = p->n, .ldc = p->n, .transpose_a = 1, .add = 1};
	for (int64_t i = parts(p->k, DEPTH, LEAST_DEPTH) - 1; i >= 0 && c.status == DYNMO_CPU_OK; i--) {
		part(p->k, DEPTH, LEAST_DEPTH, i, &shape.k);
		int n = log_of(shape.k);
		if (c.last[n])
			break; /* as all before it */
		shape.m = p->m - (slices(p) - 1) * HEIGHT;
		c.last[n] = need(&c, &shape);
		shape.m = HEIGHT;
		if (slices(p) > 1)
			c.products[n] = need(&c, &shape);
	}
	int64_t depth = up(p->k, LEAST_DEPTH);
	if (c.status == DYNMO_CPU_OK)
		c.status = rounded(k, &r->a, p->a, p->k * p->m, depth * p->m);
	if (c.status == DYNMO_CPU_OK)
		c.status = rounded(k, &r->b, p->b, p->k * p->n, depth * p->n);
	if (c.status == DYNMO_CPU_OK)
		c.status = reserve_scratch(&c);
	if (c.status != DYNMO_CPU_OK)
		return c.status;
	c.a = r->a.data;
	c.b = r->b.data;
	dynmo_parallel(k->team, slices(p), 1, depths, &c);
	return c.status;
}

int32_t dynmo_rounded_multiply(const dynmo_cpu *k, const struct dynmo_dense *p)
{
	return p->transpose_a ? multiply_gradients(k, p) : multiply_weights(k, p);
}
