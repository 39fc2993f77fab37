/* Dense products of operands that are rounded to bfloat16, with sums in float32: by oneDNN, or, emulated,
 * by the BLAS on rounded copies.
 *
 * oneDNN makes code for each shape, and bits may depend on the shape. So a product is cut into parts of a
 * few heights and depths, which follow from its own shape alone. What is missing to a whole part is 0. */
#include "rounded.h"

enum {
	ROWS = 128, LEAST_ROWS = 16,   /* of A in a part of a product with weights: powers of two */
	DEPTH = 512, LEAST_DEPTH = 32, /* of a part of a gradient of weights: powers of two */
	HEIGHT = 768,                  /* rows of such a part, up to twice as many in the last one */
};

struct rounding {
	const dynmo_cpu *k;
	const float *x;
	uint16_t *half;
	float *wide;
};

static void to_halves(const void *job, int64_t first, int64_t last)
{
	const struct rounding *r = job;
	r->k->to_bfloat16(r->half + first, r->x + first, last - first);
}

static void to_rounded(const void *job, int64_t first, int64_t last)
{
	const struct rounding *r = job;
	uint16_t half[DYNMO_LINE];
	for (int64_t i = first; i < last; i += DYNMO_LINE) {
		int64_t n = dynmo_min(DYNMO_LINE, last - i);
		r->k->to_bfloat16(half, r->x + i, n);
		r->k->add_bfloat16(r->wide + i, NULL, half, n);
	}
}

/* Rounds n floats into memory that has zeros up to `padded` numbers. */
static int32_t halves(const dynmo_cpu *k, struct dynmo_memory *m, const float *x, int64_t n, int64_t padded)
{
	int32_t status = dynmo_reserve(m, padded * (int64_t)sizeof(uint16_t));
	if (status != DYNMO_CPU_OK)
		return status;
	uint16_t *half = m->data;
	dynmo_parallel(k->team, n, GRAIN, to_halves, &(struct rounding){.k = k, .x = x, .half = half});
	memset(half + n, 0, (size_t)(padded - n) * sizeof *half);
	return DYNMO_CPU_OK;
}

void dynmo_rounded_copy(const dynmo_cpu *k, float *wide, const float *x, int64_t n)
{
	dynmo_parallel(k->team, n, GRAIN, to_rounded, &(struct rounding){.k = k, .x = x, .wide = wide});
}

int32_t dynmo_rounded_copies(const dynmo_cpu *k, struct dynmo_dense *p)
{
	struct dynmo_rounded *r = k->rounded;
	const void *b = NULL;
	int64_t bytes = p->k * p->n * (int64_t)sizeof(float);
	int32_t status = dynmo_reserve(&r->a, p->m * p->k * (int64_t)sizeof(float));
	if (status != DYNMO_CPU_OK)
		return status;
	dynmo_rounded_copy(k, r->a.data, p->a, p->m * p->k);
	p->a = r->a.data;
	if (!p->transpose_a) {
		status = dynmo_rounded_weights(k, p, NULL, bytes, &b);
		p->b = b;
		return status;
	}
	status = dynmo_reserve(&r->b, bytes);
	if (status != DYNMO_CPU_OK)
		return status;
	dynmo_rounded_copy(k, r->b.data, p->b, p->k * p->n);
	p->b = r->b.data;
	return DYNMO_CPU_OK;
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
	const uint16_t *a;
	const char *b;
	float *tail; /* the last part of C, where it is longer than C */
	char *scratch;
	int64_t scratch_bytes; /* of a member */
	int32_t status;
};

static int log_of(int64_t size) { return __builtin_ctzll((uint64_t)size); }

static void multiply(struct call *c, const struct dynmo_product *product, float *out, const uint16_t *a, const char *b)
{
	char *scratch = c->scratch + dynmo_team_member() * c->scratch_bytes;
	if (dynmo_dnnl_multiply(product, scratch, out, a, b, c->p->bias) != 0)
		__atomic_store_n(&c->status, DYNMO_CPU_DNNL, __ATOMIC_RELAXED);
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

/* Finds a product and makes room for its scratch memory. */
static const struct dynmo_product *need(struct call *c, const struct dynmo_shape *shape, const struct dynmo_product *like)
{
	const struct dynmo_product *product = dynmo_rounded_product(c->k->rounded, shape, like);
	if (product == NULL)
		return NULL;
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

/* The parts are rows of C. */
static int32_t multiply_weights(const dynmo_cpu *k, const struct dynmo_dense *p)
{
	struct dynmo_rounded *r = k->rounded;
	struct call c = {.k = k, .p = p};
	struct dynmo_shape shape = {.m = ROWS, .n = p->n, .k = p->k, .lda = p->k, .ldc = p->n, .transpose_b = p->transpose_b,
		.ldb = p->ldb};
	const struct dynmo_product *like = need(&c, &shape, NULL);
	int64_t count = parts(p->m, ROWS, LEAST_ROWS), size, last;
	part(p->m, ROWS, LEAST_ROWS, count - 1, &last);
	if (like == NULL)
		return DYNMO_CPU_DNNL;
	shape.bias = p->bias != NULL;
	for (int64_t i = count - 1; i >= 0; i--) {
		part(p->m, ROWS, LEAST_ROWS, i, &size);
		if (c.products[log_of(size)])
			break; /* as all before it */
		shape.m = size;
		if ((c.products[log_of(size)] = need(&c, &shape, like)) == NULL)
			return DYNMO_CPU_DNNL;
	}
	const void *packed = NULL;
	int32_t status = dynmo_rounded_weights(k, p, like, dynmo_dnnl_packed(like), &packed);
	if (status == DYNMO_CPU_OK)
		status = dynmo_reserve(&r->tail, last * p->n * (int64_t)sizeof *c.tail);
	if (status == DYNMO_CPU_OK)
		status = halves(k, &r->a, p->a, p->m * p->k, up(p->m, LEAST_ROWS) * p->k);
	if (status == DYNMO_CPU_OK)
		status = reserve_scratch(&c);
	if (status != DYNMO_CPU_OK)
		return status;
	c.a = r->a.data;
	c.b = packed;
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
		const char *b = c->b;
		for (int64_t i = 0; i < count; i++) {
			int64_t depth = part(p->k, DEPTH, LEAST_DEPTH, i, &size);
			const struct dynmo_product *product = products[log_of(size)];
			multiply(c, product, p->c + slice * HEIGHT * p->n, c->a + depth * p->m + slice * HEIGHT, b);
			b += up(dynmo_dnnl_packed(product), DYNMO_LINE);
		}
	}
}

/* Packs the parts of B, the last one with zeros behind its rows. */
static int32_t pack_depths(struct call *c)
{
	const struct dynmo_dense *p = c->p;
	struct dynmo_rounded *r = c->k->rounded;
	int64_t count = parts(p->k, DEPTH, LEAST_DEPTH), size, bytes = 0;
	for (int64_t i = 0; i < count; i++) {
		part(p->k, DEPTH, LEAST_DEPTH, i, &size);
		bytes += up(dynmo_dnnl_packed(c->last[log_of(size)]), DYNMO_LINE);
	}
	int32_t status = dynmo_reserve(&r->b, bytes);
	if (status == DYNMO_CPU_OK)
		status = dynmo_reserve(&r->tail, size * p->n * (int64_t)sizeof(float)); /* of the last part */
	char *b = r->b.data;
	c->b = b;
	for (int64_t i = 0; i < count && status == DYNMO_CPU_OK; i++) {
		int64_t first = part(p->k, DEPTH, LEAST_DEPTH, i, &size);
		const float *x = p->b + first * p->n;
		if (first + size > p->k) {
			int64_t there = (p->k - first) * p->n;
			memcpy(r->tail.data, x, (size_t)there * sizeof *x);
			memset((float *)r->tail.data + there, 0, (size_t)(size * p->n - there) * sizeof *x);
			x = r->tail.data;
		}
		if (dynmo_dnnl_pack(c->last[log_of(size)], b, x) != 0)
			status = DYNMO_CPU_DNNL;
		b += up(dynmo_dnnl_packed(c->last[log_of(size)]), DYNMO_LINE);
	}
	return status;
}

/* A gradient of weights: C += Aᵀ·B. The parts are rows of A and B, slice by slice of C. */
static int32_t multiply_gradients(const dynmo_cpu *k, const struct dynmo_dense *p)
{
	struct dynmo_rounded *r = k->rounded;
	struct call c = {.k = k, .p = p};
	int64_t count = parts(p->k, DEPTH, LEAST_DEPTH), size;
	for (int64_t i = count - 1; i >= 0; i--) {
		part(p->k, DEPTH, LEAST_DEPTH, i, &size);
		int n = log_of(size);
		if (c.last[n])
			break; /* as all before it */
		struct dynmo_shape shape = {.m = p->m - (slices(p) - 1) * HEIGHT, .n = p->n, .k = size, .lda = p->m,
			.ldc = p->n, .transpose_a = 1, .add = 1, .ldb = p->n};
		c.last[n] = need(&c, &shape, NULL);
		shape.m = HEIGHT;
		if (c.last[n] && slices(p) > 1)
			c.products[n] = need(&c, &shape, c.last[n]);
		if (c.last[n] == NULL || (slices(p) > 1 && c.products[n] == NULL))
			return DYNMO_CPU_DNNL;
	}
	int32_t status = halves(k, &r->a, p->a, p->k * p->m, up(p->k, LEAST_DEPTH) * p->m);
	if (status == DYNMO_CPU_OK)
		status = pack_depths(&c);
	if (status == DYNMO_CPU_OK)
		status = reserve_scratch(&c);
	if (status != DYNMO_CPU_OK)
		return status;
	c.a = r->a.data;
	dynmo_parallel(k->team, slices(p), 1, depths, &c);
	return c.status;
}

int32_t dynmo_rounded_multiply(const dynmo_cpu *k, const struct dynmo_dense *p)
{
	return p->transpose_a ? multiply_gradients(k, p) : multiply_weights(k, p);
}
