/* Dense products keep code, memory and rounded weights between calls. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "dense.h"

enum { HUGE_FROM = 1 << 22 }; /* bytes of memory that takes huge pages */

/* A product that has been made before. */
struct known {
	struct dynmo_shape shape;
	struct dynmo_product *product;
	int32_t tried, alike; /* see dynmo_means_alike */
};

/* A matrix of weights, rounded. */
struct weights {
	const float *matrix; /* NULL: a free place of the table */
	int64_t elements;
	uint32_t turn; /* of the last rounding */
	void *rounded;
};

int32_t dynmo_reserve(struct dynmo_memory *m, int64_t bytes)
{
	if (m->bytes >= bytes && m->data != NULL)
		return DYNMO_CPU_OK;
	int64_t unit = bytes >= HUGE_FROM ? 1 << 21 : DYNMO_LINE;
	free(m->data);
	m->bytes = (bytes + unit - 1) / unit * unit;
	m->data = aligned_alloc((size_t)unit, (size_t)m->bytes);
	if (m->data == NULL) {
		m->bytes = 0;
		return DYNMO_CPU_MEMORY;
	}
	if (unit > DYNMO_LINE)
		madvise(m->data, (size_t)m->bytes, MADV_HUGEPAGE); /* without huge pages it works too */
	return DYNMO_CPU_OK;
}

struct dynmo_means *dynmo_means_open(int32_t how, int64_t forward, int64_t backward)
{
	struct dynmo_means *r = calloc(1, sizeof *r);
	if (r != NULL)
		*r = (struct dynmo_means){.how = how, .most = {backward, forward}};
	return r;
}

void dynmo_means_close(struct dynmo_means *r)
{
	if (r == NULL)
		return;
	for (int64_t i = 0; i < r->count; i++)
		dynmo_dnnl_free(r->known[i].product);
	for (int64_t i = 0; i < r->places; i++)
		free(r->table[i].rounded);
	const struct dynmo_memory *all[] = {&r->a, &r->b, &r->scratch, &r->strips};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]->data);
	free(r->known);
	free(r->table);
	free(r);
}

/* Returns NULL if there is none and none can be made. */
static struct known *find(struct dynmo_means *r, const struct dynmo_shape *shape)
{
	for (int64_t i = 0; i < r->count; i++)
		if (memcmp(&r->known[i].shape, shape, sizeof *shape) == 0)
			return &r->known[i];
	if (r->count == r->room) {
		int64_t room = 2 * r->room + 16;
		struct known *more = realloc(r->known, (size_t)room * sizeof *more);
		if (more == NULL)
			return NULL;
		r->known = more;
		r->room = room;
	}
	struct dynmo_product *product = dynmo_dnnl_product(shape);
	if (product == NULL)
		return NULL;
	r->known[r->count] = (struct known){.shape = *shape, .product = product};
	return &r->known[r->count++];
}

const struct dynmo_product *dynmo_means_product(struct dynmo_means *r, const struct dynmo_shape *shape)
{
	const struct known *found = find(r, shape);
	return found ? found->product : NULL;
}

/* Fills n elements with numbers of both signs between 1/256 and 256, whose sums are rounded: so they depend on the
 * order. */
static void fill(void *data, int64_t n, int wide, uint32_t seed)
{
	uint32_t x = seed;
	for (int64_t i = 0; i < n; i++) {
		x = x * 1664525 + 1013904223;
		uint32_t exponent = 119 + (x >> 28);
		uint32_t bits = (x << 4 & 0x80000000) | exponent << 23 | (x >> 4 & 0x7fffff);
		if (wide)
			((uint32_t *)data)[i] = bits;
		else
			((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
	}
}

/* A trial has a part whole and in strips. */
struct trial {
	struct dynmo_memory a, b, bias, whole, strips, scratch;
};

/* Multiplies rows, if there is memory and the library can. */
static int try(struct dynmo_means *r, struct trial *t, struct dynmo_shape shape, int64_t row, int64_t rows, float *c)
{
	shape.m = rows;
	const struct dynmo_product *product = dynmo_means_product(r, &shape);
	return product && dynmo_reserve(&t->scratch, dynmo_dnnl_scratch(product)) == DYNMO_CPU_OK &&
		dynmo_dnnl_multiply(product, t->scratch.data, c + row * shape.ldc,
			(char *)t->a.data + row * shape.lda * (shape.wide ? 4 : 2), t->b.data, shape.bias ? t->bias.data : NULL) == 0;
}

static int equal(struct dynmo_means *r, struct trial *t, const struct dynmo_shape *s, int64_t strip)
{
	int64_t bytes = s->wide ? 4 : 2, a = s->m * s->lda, b = (s->transpose_b ? s->n : s->k) * s->ldb, c = s->m * s->ldc;
	if (dynmo_reserve(&t->a, a * bytes) != DYNMO_CPU_OK || dynmo_reserve(&t->b, b * bytes) != DYNMO_CPU_OK ||
		dynmo_reserve(&t->bias, s->n * 4) != DYNMO_CPU_OK || dynmo_reserve(&t->whole, c * 4) != DYNMO_CPU_OK ||
		dynmo_reserve(&t->strips, c * 4) != DYNMO_CPU_OK)
		return 0;
	fill(t->a.data, a, (int)s->wide, 1);
	fill(t->b.data, b, (int)s->wide, 2);
	fill(t->bias.data, s->n, 1, 3);
	fill(t->whole.data, c, 1, 4);
	fill(t->strips.data, c, 1, 4);
	int done = try(r, t, *s, 0, s->m, t->whole.data);
	for (int64_t row = 0; row < s->m && done; row += strip)
		done = try(r, t, *s, row, dynmo_min(strip, s->m - row), t->strips.data);
	return done && memcmp(t->whole.data, t->strips.data, (size_t)(c * 4)) == 0;
}

int32_t dynmo_means_alike(struct dynmo_means *r, const struct dynmo_shape *shape, int64_t strip)
{
	struct known *whole = find(r, shape);
	if (whole == NULL || whole->tried)
		return whole && whole->alike;
	struct trial t = {{NULL, 0}};
	int32_t alike = equal(r, &t, shape, strip);
	const struct dynmo_memory *all[] = {&t.a, &t.b, &t.bias, &t.whole, &t.strips, &t.scratch};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]->data);
	whole = find(r, shape); /* the trial may have moved it */
	if (whole != NULL) {
		whole->tried = 1;
		whole->alike = alike;
	}
	return alike;
}

/* Returns the place of a matrix in a table, or a free place. */
static struct weights *place(struct weights *table, int64_t places, const float *matrix, int64_t elements)
{
	uint64_t hash = (uint64_t)(uintptr_t)matrix / DYNMO_LINE * 0x9e3779b97f4a7c15;
	for (int64_t i = (int64_t)(hash >> 32);; i++) {
		struct weights *w = &table[i & (places - 1)];
		if (w->matrix == NULL || (w->matrix == matrix && w->elements == elements))
			return w;
	}
}

/* Makes a table that has room, of matrices that were used in this turn. */
static int32_t rebuild(struct dynmo_means *r)
{
	int64_t kept = 0, places = 64;
	for (int64_t i = 0; i < r->places; i++)
		kept += r->table[i].matrix != NULL && r->table[i].turn == r->turn;
	while (places < 4 * (kept + 1))
		places *= 2;
	struct weights *table = calloc((size_t)places, sizeof *table);
	if (table == NULL)
		return DYNMO_CPU_MEMORY;
	for (int64_t i = 0; i < r->places; i++) {
		struct weights *w = &r->table[i];
		if (w->matrix != NULL && w->turn == r->turn)
			*place(table, places, w->matrix, w->elements) = *w;
		else
			free(w->rounded);
	}
	free(r->table);
	r->table = table;
	r->places = places;
	r->used = kept;
	return DYNMO_CPU_OK;
}

/* At the end of a turn, matrices that it did not use are forgotten. */
void dynmo_means_hold(struct dynmo_means *r, int32_t hold)
{
	int stale = 0;
	if (hold)
		r->turn++;
	for (int64_t i = 0; i < r->places && !hold; i++)
		stale |= r->table[i].matrix != NULL && r->table[i].turn != r->turn;
	if (stale)
		(void)rebuild(r); /* without memory they stay */
	r->held = hold;
}

int32_t dynmo_means_weights(const dynmo_cpu *k, const float *matrix, int64_t elements, const void **rounded)
{
	struct dynmo_means *r = k->means;
	int64_t bytes = elements * (int64_t)(r->how == DYNMO_CPU_EMULATED ? sizeof(float) : sizeof(uint16_t));
	if (!r->held) {
		int32_t status = dynmo_reserve(&r->b, bytes);
		if (status == DYNMO_CPU_OK)
			dynmo_means_copy(k, r->b.data, matrix, elements);
		*rounded = r->b.data;
		return status;
	}
	if (2 * (r->used + 1) > r->places) {
		int32_t status = rebuild(r);
		if (status != DYNMO_CPU_OK)
			return status;
	}
	struct weights *w = place(r->table, r->places, matrix, elements);
	if (w->matrix == NULL) {
		struct dynmo_memory fresh = {NULL, 0};
		int32_t status = dynmo_reserve(&fresh, bytes);
		if (status != DYNMO_CPU_OK)
			return status;
		*w = (struct weights){.matrix = matrix, .elements = elements, .turn = r->turn - 1, .rounded = fresh.data};
		r->used++;
	}
	if (w->turn != r->turn)
		dynmo_means_copy(k, w->rounded, matrix, elements);
	w->turn = r->turn;
	*rounded = w->rounded;
	return DYNMO_CPU_OK;
}
