/* Dense products by oneDNN: of operands that are rounded to bfloat16, or of floats where oneDNN is the
 * faster library. Emulated, the BLAS makes products of rounded copies.
 *
 * oneDNN makes code for each shape, and bits may depend on the shape. So a product is cut into parts, which
 * follow from its own shape alone. There are few sizes of parts. */
#include "dense.h"

enum {
	ROWS = 128, ROW_UNIT = 16,   /* of A in a part of a product with weights */
	DEPTH = 512, DEPTH_UNIT = 32, /* of a part of a gradient of weights */
	LEAST = 1 << 22,             /* multiplications that are worth a call */
	HEIGHT = 384,                /* rows of such a part; the last one has fewer than twice as many */
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

void dynmo_means_copy(const dynmo_cpu *k, void *rounded, const float *x, int64_t n)
{
	struct rounding r = {k, x, rounded};
	dynmo_parallel(k->team, n, GRAIN, k->means->how == DYNMO_CPU_EMULATED ? to_float : to_bfloat16, &r);
}

/* Rounds n floats into memory. */
static int32_t rounded(const dynmo_cpu *k, struct dynmo_memory *m, const float *x, int64_t n)
{
	int32_t status = dynmo_reserve(m, n * (int64_t)(k->means->how == DYNMO_CPU_EMULATED ? sizeof(float) : sizeof(uint16_t)));
	if (status == DYNMO_CPU_OK)
		dynmo_means_copy(k, m->data, x, n);
	return status;
}

int32_t dynmo_dense_copies(const dynmo_cpu *k, struct dynmo_dense *p)
{
	struct dynmo_means *r = k->means;
	const void *b = NULL;
	int32_t status = rounded(k, &r->a, p->a, p->m * p->k);
	if (status == DYNMO_CPU_OK && p->transpose_a)
		status = rounded(k, &r->b, p->b, p->k * p->n);
	else if (status == DYNMO_CPU_OK)
		status = dynmo_means_weights(k, p->b, p->k * p->n, &b);
	p->a = r->a.data;
	p->b = p->transpose_a ? r->b.data : b;
	return status;
}

/* A cut divides a length into whole parts. Of the rest it makes a part of whole units, and a last part. */
struct cut {
	int64_t length, whole, unit;
};

enum { WHOLE, UNITS, REST, KINDS };

static int64_t size_of(struct cut c, int kind)
{
	int64_t rest = c.length % c.whole;
	return kind == WHOLE ? c.whole : kind == UNITS ? rest - rest % c.unit : rest % c.unit;
}

static int64_t count_of(struct cut c, int kind) { return kind == WHOLE ? c.length / c.whole : size_of(c, kind) > 0; }
static int64_t parts(struct cut c) { return count_of(c, WHOLE) + count_of(c, UNITS) + count_of(c, REST); }

/* Sets *first to the first number of part i, and returns its kind. */
static int part(struct cut c, int64_t i, int64_t *first)
{
	int64_t whole = count_of(c, WHOLE);
	*first = dynmo_min(i, whole) * c.whole;
	if (i < whole)
		return WHOLE;
	if (i == whole && count_of(c, UNITS))
		return UNITS;
	*first += size_of(c, UNITS);
	return REST;
}

static struct cut rows_of(const struct dynmo_dense *p) { return (struct cut){p->m, ROWS, ROW_UNIT}; }
static struct cut depths_of(const struct dynmo_dense *p) { return (struct cut){p->k, DEPTH, DEPTH_UNIT}; }

/* A call that members of the team share. */
struct call {
	const dynmo_cpu *k;
	const struct dynmo_dense *p;
	const struct dynmo_product *products[KINDS]; /* of parts */
	const struct dynmo_product *last[KINDS];     /* of parts in the last slice */
	const char *a, *b;
	int64_t element; /* bytes of an element of A and B */
	char *scratch;
	int64_t scratch_bytes; /* of a member */
	int32_t status;
};

static void multiply(struct call *c, const struct dynmo_product *product, float *out, int64_t a, int64_t b)
{
	char *scratch = c->scratch + dynmo_team_member() * c->scratch_bytes;
	if (dynmo_dnnl_multiply(product, scratch, out, c->a + a * c->element, c->b + b * c->element, c->p->bias) != 0)
		__atomic_store_n(&c->status, DYNMO_CPU_DNNL, __ATOMIC_RELAXED);
}

/* Finds a product and makes room for its scratch memory. */
static const struct dynmo_product *need(struct call *c, const struct dynmo_shape *shape)
{
	const struct dynmo_product *product = dynmo_means_product(c->k->means, shape);
	if (product == NULL) {
		c->status = DYNMO_CPU_DNNL;
		return NULL;
	}
	int64_t bytes = (dynmo_dnnl_scratch(product) + DYNMO_LINE - 1) / DYNMO_LINE * DYNMO_LINE;
	if (bytes > c->scratch_bytes)
		c->scratch_bytes = bytes;
	return product;
}

/* Rounds A and B, unless products are of floats, and reserves scratch memory. */
static void prepare(struct call *c)
{
	struct dynmo_means *r = c->k->means;
	struct dynmo_dense p = *c->p;
	if (c->status == DYNMO_CPU_OK && r->how == DYNMO_CPU_ROUNDED)
		c->status = dynmo_dense_copies(c->k, &p);
	if (c->status == DYNMO_CPU_OK)
		c->status = dynmo_reserve(&r->scratch, c->scratch_bytes * dynmo_team_size(c->k->team) + DYNMO_LINE);
	c->a = (const char *)p.a;
	c->b = (const char *)p.b;
	c->element = r->how == DYNMO_CPU_ROUNDED ? sizeof(uint16_t) : sizeof(float);
	c->scratch = r->scratch.data;
}

static void rows(const void *job, int64_t first, int64_t last)
{
	struct call *c = (struct call *)(uintptr_t)job;
	for (int64_t i = first, row; i < last; i++) {
		int kind = part(rows_of(c->p), i, &row);
		multiply(c, c->products[kind], c->p->c + row * c->p->n, row * c->p->k, 0);
	}
}

/* The parts are rows of A and C. */
static int32_t multiply_weights(const dynmo_cpu *k, const struct dynmo_dense *p)
{
	struct call c = {.k = k, .p = p};
	struct dynmo_shape shape = {.n = p->n, .k = p->k, .lda = p->k, .ldb = p->ldb, .ldc = p->n,
		.transpose_b = p->transpose_b, .bias = p->bias != NULL, .wide = k->means->how == DYNMO_CPU_FLOATS};
	for (int kind = 0; kind < KINDS && c.status == DYNMO_CPU_OK; kind++) {
		shape.m = size_of(rows_of(p), kind);
		if (count_of(rows_of(p), kind))
			c.products[kind] = need(&c, &shape);
	}
	prepare(&c);
	if (c.status == DYNMO_CPU_OK)
		dynmo_parallel(k->team, parts(rows_of(p)), 1, rows, &c);
	return c.status;
}

/* Slices of a gradient of weights: rows of C. */
static int64_t slices(const struct dynmo_dense *p) { return p->m < 2 * HEIGHT ? 1 : p->m / HEIGHT; }

static void depths(const void *job, int64_t first, int64_t last)
{
	struct call *c = (struct call *)(uintptr_t)job;
	const struct dynmo_dense *p = c->p;
	for (int64_t slice = first; slice < last; slice++) {
		const struct dynmo_product *const *products = slice + 1 == slices(p) ? c->last : c->products;
		for (int64_t i = 0, depth; i < parts(depths_of(p)); i++) {
			int kind = part(depths_of(p), i, &depth);
			multiply(c, products[kind], p->c + slice * HEIGHT * p->n, depth * p->m + slice * HEIGHT, depth * p->n);
		}
	}
}

/* A gradient of weights: C += Aᵀ·B. The parts are rows of A and B, slice by slice of C. */
static int32_t multiply_gradients(const dynmo_cpu *k, const struct dynmo_dense *p)
{
	struct call c = {.k = k, .p = p};
	struct dynmo_shape shape = {.n = p->n, .lda = p->m, .ldb = p->n, .ldc = p->n, .transpose_a = 1, .add = 1,
		.wide = k->means->how == DYNMO_CPU_FLOATS};
	for (int kind = 0; kind < KINDS && c.status == DYNMO_CPU_OK; kind++) {
		if (!count_of(depths_of(p), kind))
			continue;
		shape.k = size_of(depths_of(p), kind);
		shape.m = p->m - (slices(p) - 1) * HEIGHT;
		c.last[kind] = need(&c, &shape);
		shape.m = HEIGHT;
		if (slices(p) > 1)
			c.products[kind] = need(&c, &shape);
	}
	prepare(&c);
	if (c.status == DYNMO_CPU_OK)
		dynmo_parallel(k->team, slices(p), 1, depths, &c);
	return c.status;
}

int32_t dynmo_dense_chosen(const dynmo_cpu *k, const struct dynmo_dense *p)
{
	const struct dynmo_means *r = k->means;
	if (r == NULL || r->how == DYNMO_CPU_EMULATED || p->m == 0 || p->n == 0 || p->k == 0)
		return 0;
	return r->how == DYNMO_CPU_ROUNDED ||
		(!p->transpose_a && p->m <= r->most[p->transpose_b] && p->m * p->n * p->k >= LEAST);
}

int32_t dynmo_dense_multiply(const dynmo_cpu *k, const struct dynmo_dense *p)
{
	return p->transpose_a ? multiply_gradients(k, p) : multiply_weights(k, p);
}
