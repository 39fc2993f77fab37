/* The state of rounded products: code that was made, memory, and packed weights. */
#include <stdlib.h>
#include <sys/mman.h>

#include "rounded.h"

enum { HUGE_FROM = 1 << 22 }; /* bytes of memory that takes huge pages */

/* A product that has been made before. */
struct known {
	struct dynmo_shape shape;
	struct dynmo_product *product;
};

/* A matrix of weights, packed, or rounded where products are emulated. */
struct packed {
	const float *matrix; /* NULL: a free place of the table */
	int64_t c, o;
	int32_t forward;
	uint32_t turn; /* in which it was packed */
	void *data;
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

struct dynmo_rounded *dynmo_rounded_open(int32_t emulated)
{
	struct dynmo_rounded *r = calloc(1, sizeof *r);
	if (r != NULL)
		r->emulated = emulated;
	return r;
}

void dynmo_rounded_close(struct dynmo_rounded *r)
{
	if (r == NULL)
		return;
	for (int64_t i = 0; i < r->count; i++)
		dynmo_dnnl_free(r->known[i].product);
	for (int64_t i = 0; i < r->places; i++)
		free(r->table[i].data);
	const struct dynmo_memory *all[] = {&r->unheld, &r->a, &r->b, &r->scratch, &r->tail};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]->data);
	free(r->known);
	free(r->table);
	free(r);
}

const struct dynmo_product *dynmo_rounded_product(struct dynmo_rounded *r, const struct dynmo_shape *shape,
	const struct dynmo_product *like)
{
	for (int64_t i = 0; i < r->count; i++)
		if (memcmp(&r->known[i].shape, shape, sizeof *shape) == 0)
			return r->known[i].product;
	if (r->count == r->room) {
		int64_t room = 2 * r->room + 16;
		struct known *more = realloc(r->known, (size_t)room * sizeof *more);
		if (more == NULL)
			return NULL;
		r->known = more;
		r->room = room;
	}
	struct dynmo_product *product = dynmo_dnnl_product(shape, like);
	if (product != NULL)
		r->known[r->count++] = (struct known){*shape, product};
	return product;
}

/* Returns the place of a matrix in a table, or a free place. */
static struct packed *place(struct packed *table, int64_t places, const struct packed *key)
{
	uint64_t hash = ((uint64_t)(uintptr_t)key->matrix / DYNMO_LINE * 2 + (uint64_t)key->forward) * 0x9e3779b97f4a7c15;
	for (int64_t i = (int64_t)(hash >> 32);; i++) {
		struct packed *p = &table[i & (places - 1)];
		if (p->matrix == NULL || (p->matrix == key->matrix && p->forward == key->forward && p->c == key->c && p->o == key->o))
			return p;
	}
}

/* Makes a table that has room, of matrices that were used in this turn. */
static int32_t rebuild(struct dynmo_rounded *r)
{
	int64_t kept = 0, places = 64;
	for (int64_t i = 0; i < r->places; i++)
		kept += r->table[i].turn == r->turn;
	while (places < 4 * (kept + 1))
		places *= 2;
	struct packed *table = calloc((size_t)places, sizeof *table);
	if (table == NULL)
		return DYNMO_CPU_MEMORY;
	for (int64_t i = 0; i < r->places; i++) {
		struct packed *p = &r->table[i];
		if (p->matrix != NULL && p->turn == r->turn)
			*place(table, places, p) = *p;
		else
			free(p->data);
	}
	free(r->table);
	r->table = table;
	r->places = places;
	r->used = kept;
	return DYNMO_CPU_OK;
}

/* At the end of a turn, matrices that it did not use are forgotten. */
void dynmo_rounded_hold(struct dynmo_rounded *r, int32_t hold)
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

/* Packs the weights of a product, or rounds them where product is NULL. */
static int32_t pack(const dynmo_cpu *k, const struct dynmo_dense *p, const struct dynmo_product *product, void *data)
{
	if (product == NULL) {
		dynmo_rounded_copy(k, data, p->b, p->k * p->n);
		return DYNMO_CPU_OK;
	}
	return dynmo_dnnl_pack(product, data, p->b) == 0 ? DYNMO_CPU_OK : DYNMO_CPU_DNNL;
}

int32_t dynmo_rounded_weights(const dynmo_cpu *k, const struct dynmo_dense *p, const struct dynmo_product *product, int64_t bytes,
	const void **data)
{
	struct dynmo_rounded *r = k->rounded;
	if (!r->held) {
		int32_t status = dynmo_reserve(&r->unheld, bytes);
		*data = r->unheld.data;
		return status == DYNMO_CPU_OK ? pack(k, p, product, r->unheld.data) : status;
	}
	struct packed key = {.matrix = p->b, .c = p->k, .o = p->n, .forward = p->transpose_b};
	if (2 * (r->used + 1) > r->places) {
		int32_t status = rebuild(r);
		if (status != DYNMO_CPU_OK)
			return status;
	}
	struct packed *entry = place(r->table, r->places, &key);
	if (entry->matrix == NULL) {
		struct dynmo_memory fresh = {NULL, 0};
		int32_t status = dynmo_reserve(&fresh, bytes);
		if (status != DYNMO_CPU_OK)
			return status;
		*entry = key;
		entry->data = fresh.data;
		entry->turn = r->turn - 1;
		r->used++;
	}
	*data = entry->data;
	if (entry->turn == r->turn)
		return DYNMO_CPU_OK;
	entry->turn = r->turn;
	return pack(k, p, product, entry->data);
}
