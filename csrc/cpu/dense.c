/* Dense products by oneDNN: of operands that are rounded to bfloat16, or of floats where oneDNN is the
 * faster library. Emulated, the BLAS makes products of rounded copies.
 *
 * oneDNN makes code for each shape, and bits may depend on the shape. So a product is cut into parts, which
 * follow from its own shape alone. There are few sizes of parts. */
#include "dense.h"

enum {
	ROWS = 256, ROW_UNIT = 16,    /* of A in a part of a product with weights */
	STRIP = 128,                  /* rows of such a part that a member of a team computes */
	INNER = 1024,                 /* depth of such a part, backward: deeper products have a lower rate */
	DEPTH = 512, DEPTH_UNIT = 32, /* of a part of a gradient of weights */
	HEIGHT = 384,                 /* rows of C in such a part; the last part has the rest too */
	LEAST = 1 << 22,              /* multiplications that are worth a call */
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

static struct cut depths_of(const struct dynmo_dense *p)
{
	if (p->transpose_a)
		return (struct cut){p->k, DEPTH, DEPTH_UNIT};
	if (p->transpose_b || p->k <= INNER)
		return (struct cut){p->k, p->k, 1};
	return (struct cut){p->k, INNER, DEPTH_UNIT};
}

/* Rows of C that a member computes: from one depth, then from the next ones, which add. */
struct strip {
	int64_t row, rows;
	const struct dynmo_product *first, *next[KINDS];
};

/* A call that members of the team share. */
struct call {
	const dynmo_cpu *k;
	const struct dynmo_dense *p;
	struct strip *strips;
	int64_t count;         /* of strips */
	int32_t aside;         /* a strip is computed apart, then added to C */
	const char *a, *b;
	int64_t element;       /* bytes of an element of A and B */
	char *scratch;
	int64_t scratch_bytes; /* of a member: oneDNN's, and a strip that is computed apart */
	int64_t strip_bytes;
	int32_t status;
};

/* Returns bytes that hold `now` and whole lines of `wanted`. */
static int64_t larger(int64_t now, int64_t wanted)
{
	int64_t lines = (wanted + DYNMO_LINE - 1) / DYNMO_LINE * DYNMO_LINE;
	return lines > now ? lines : now;
}

/* Finds a product and makes room for its scratch memory. */
static const struct dynmo_product *need(struct call *c, const struct dynmo_shape *shape)
{
	const struct dynmo_product *product = dynmo_means_product(c->k->means, shape);
	if (product == NULL) {
		c->status = DYNMO_CPU_DNNL;
		return NULL;
	}
	c->scratch_bytes = larger(c->scratch_bytes, dynmo_dnnl_scratch(product));
	return product;
}

/* The shapes of a strip's products: of the first depth, and of the next ones of each kind. Returns which there are. */
enum { FIRST = KINDS, SHAPES };

static int shapes_of(const struct call *c, int64_t rows, struct dynmo_shape shapes[SHAPES])
{
	const struct dynmo_dense *p = c->p;
	int64_t depth;
	int first = part(depths_of(p), 0, &depth), found = 1 << FIRST;
	for (int i = 0; i < SHAPES; i++) {
		int kind = i == FIRST ? first : i;
		shapes[i] = (struct dynmo_shape){.m = rows, .n = p->n, .k = size_of(depths_of(p), kind), .lda = p->lda, .ldb = p->ldb,
			.ldc = p->n, .transpose_a = p->transpose_a, .transpose_b = p->transpose_b, .bias = p->bias != NULL,
			.add = i != FIRST || (p->beta > 0 && p->bias == NULL && !c->aside), .wide = c->k->means->how == DYNMO_CPU_FLOATS};
		if (i != FIRST && count_of(depths_of(p), kind) > (kind == first))
			found |= 1 << i;
	}
	return found;
}

static void add_strip(struct call *c, int64_t row, int64_t rows)
{
	struct dynmo_shape shapes[SHAPES];
	int found = shapes_of(c, rows, shapes);
	struct strip *s = &c->strips[c->count++];
	*s = (struct strip){.row = row, .rows = rows, .first = need(c, &shapes[FIRST])};
	for (int i = 0; i < KINDS; i++)
		if (found >> i & 1)
			s->next[i] = need(c, &shapes[i]);
	if (c->aside)
		c->strip_bytes = larger(c->strip_bytes, rows * c->p->n * (int64_t)sizeof(float));
}

/* Says whether members of a team may share a part of ROWS rows: in strips it has the same bits. */
static int shared(const struct call *c)
{
	struct dynmo_shape shapes[SHAPES];
	int found = shapes_of(c, ROWS, shapes), alike = dynmo_team_size(c->k->team) > 1;
	for (int i = 0; i < SHAPES && alike; i++)
		if (found >> i & 1)
			alike = dynmo_means_alike(c->k->means, &shapes[i], STRIP);
	return alike;
}

/* Of a gradient the strips are slices of C. Else they are parts of ROWS rows, or two strips each; the rest is a part of
 * STRIP rows, one of whole units, and a last one. */
static void add_strips(struct call *c)
{
	const struct dynmo_dense *p = c->p;
	int64_t row = 0;
	if (p->transpose_a) {
		for (; p->m - row >= 2 * HEIGHT; row += HEIGHT)
			add_strip(c, row, HEIGHT);
		add_strip(c, row, p->m - row);
		return;
	}
	int64_t strip = p->m >= ROWS && shared(c) ? STRIP : ROWS;
	while (row < p->m) {
		int64_t left = p->m - row;
		int64_t rows = left >= ROWS ? strip : left >= STRIP ? STRIP : left >= ROW_UNIT ? left - left % ROW_UNIT : left;
		add_strip(c, row, rows);
		row += rows;
	}
}

/* Finds the products, rounds A and B, unless products are of floats, and reserves memory. */
static void prepare(struct call *c)
{
	struct dynmo_means *r = c->k->means;
	struct dynmo_dense p = *c->p;
	c->status = dynmo_reserve(&r->strips, (p.m / STRIP + KINDS) * (int64_t)sizeof *c->strips);
	if (c->status != DYNMO_CPU_OK)
		return;
	c->strips = r->strips.data;
	add_strips(c);
	if (c->status == DYNMO_CPU_OK && r->how == DYNMO_CPU_ROUNDED)
		c->status = dynmo_dense_copies(c->k, &p);
	c->scratch_bytes += c->strip_bytes;
	if (c->status == DYNMO_CPU_OK)
		c->status = dynmo_reserve(&r->scratch, c->scratch_bytes * dynmo_team_size(c->k->team) + DYNMO_LINE);
	c->a = (const char *)p.a;
	c->b = (const char *)p.b;
	c->element = r->how == DYNMO_CPU_ROUNDED ? sizeof(uint16_t) : sizeof(float);
	c->scratch = r->scratch.data;
}

static void multiply(const void *job, int64_t first, int64_t last)
{
	struct call *c = (struct call *)(uintptr_t)job;
	const struct dynmo_dense *p = c->p;
	char *apart = c->scratch + dynmo_team_member() * c->scratch_bytes, *scratch = apart + c->strip_bytes;
	for (const struct strip *s = c->strips + first; s < c->strips + last; s++) {
		float *rows = p->c + s->row * p->n, *out = c->aside ? (float *)(void *)apart : rows;
		for (int64_t i = 0, depth; i < parts(depths_of(p)); i++) {
			int kind = part(depths_of(p), i, &depth);
			int64_t a = p->transpose_a ? depth * p->lda + s->row : s->row * p->lda + depth;
			if (dynmo_dnnl_multiply(i ? s->next[kind] : s->first, scratch, out, c->a + a * c->element,
					c->b + depth * p->ldb * c->element, p->bias) != 0)
				__atomic_store_n(&c->status, DYNMO_CPU_DNNL, __ATOMIC_RELAXED);
		}
		if (c->aside)
			c->k->add(rows, rows, out, s->rows * p->n);
	}
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
	struct call c = {.k = k, .p = p, .aside = p->transpose_a && dynmo_dnnl_adds_slowly()};
	prepare(&c);
	if (c.status == DYNMO_CPU_OK)
		dynmo_parallel(k->team, c.count, 1, multiply, &c);
	return c.status;
}
