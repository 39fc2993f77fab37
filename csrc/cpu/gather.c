/* Gathers, scatters and adds up rows of a table, and computes the gradients of the factors that
 * scale the rows. src/kernel/kernel.go has the equations. */
#include "kernels.h"

/* A call on n rows of a table, rows[i] for item i. Only gather may have a row twice. */
struct gather {
	float *out;               /* gather: (n, c). scatter: the table. gate_gradient: dlogits, by row of the table */
	const float *inp;         /* gather: the table. scatter: add (n, c). gate_gradient: dout (n, c) */
	const float *a, *b;       /* (n, c), for gate_gradient */
	const float *keep;        /* (n), for scatter */
	const float *factor;      /* (n) or NULL */
	const int32_t *rows;      /* (n) */
	int64_t c;
};

/* out[i] = factor[i] · inp[rows[i]]. */
static void gather_rows(const void *job, int64_t first, int64_t last)
{
	const struct gather *g = job;
	int64_t c = g->c;
	for (int64_t i = first; i < last; i++) {
		const float *from = g->inp + g->rows[i] * c;
		float *to = g->out + i * c;
		if (!g->factor) {
			memcpy(to, from, (size_t)c * sizeof(float));
			continue;
		}
		float factor = g->factor[i];
		for (int64_t j = 0; j < c; j++)
			to[j] = factor * from[j];
	}
}

int32_t dynmo_cpu_gather_rows(const dynmo_cpu *k, float *out, const float *inp, const int32_t *rows, const float *factor,
	int64_t n, int64_t c, int64_t table)
{
	if (!dynmo_inside(rows, n, table))
		return DYNMO_CPU_INDEX;
	dynmo_parallel(k->team, n, dynmo_row_grain(c), gather_rows, &(struct gather){
		.out = out, .inp = inp, .rows = rows, .factor = factor, .c = c});
	return DYNMO_CPU_OK;
}

/* out[rows[i]] = keep[i] · out[rows[i]] + factor[i] · inp[i]. */
static void scatter_rows(const void *job, int64_t first, int64_t last)
{
	const struct gather *g = job;
	int64_t c = g->c;
	for (int64_t i = first; i < last; i++) {
		float *to = g->out + g->rows[i] * c, keep = g->keep[i], factor = g->factor ? g->factor[i] : 1;
		const float *from = g->inp + i * c;
		for (int64_t j = 0; j < c; j++)
			to[j] = keep * to[j] + factor * from[j];
	}
}

int32_t dynmo_cpu_scatter_rows(const dynmo_cpu *k, float *out, const float *add, const int32_t *rows, const float *keep,
	const float *factor, int64_t n, int64_t c, int64_t table)
{
	if (!dynmo_inside(rows, n, table))
		return DYNMO_CPU_INDEX;
	dynmo_parallel(k->team, n, dynmo_row_grain(c), scatter_rows, &(struct gather){
		.out = out, .inp = add, .rows = rows, .keep = keep, .factor = factor, .c = c});
	return DYNMO_CPU_OK;
}

/* dlogits[rows[i]] += factor[i] · Σ_c dout[i]·(a[i] - b[i]). */
static void gate_gradient(const void *job, int64_t first, int64_t last)
{
	const struct gather *g = job;
	for (int64_t i = first; i < last; i++) {
		const float *dout = g->inp + i * g->c, *a = g->a + i * g->c, *b = g->b + i * g->c;
		float sum = 0;
		for (int64_t j = 0; j < g->c; j++)
			sum += dout[j] * (a[j] - b[j]);
		g->out[g->rows[i]] += g->factor[i] * sum;
	}
}

int32_t dynmo_cpu_gate_gradient(const dynmo_cpu *k, float *dlogits, const float *dout, const float *a, const float *b,
	const int32_t *rows, const float *factor, int64_t n, int64_t c, int64_t table)
{
	if (!dynmo_inside(rows, n, table))
		return DYNMO_CPU_INDEX;
	dynmo_parallel(k->team, n, dynmo_row_grain(c), gate_gradient, &(struct gather){
		.out = dlogits, .inp = dout, .a = a, .b = b, .rows = rows, .factor = factor, .c = c});
	return DYNMO_CPU_OK;
}

/* A call on n sums. Each adds `each` rows of a table, scaled by factors. */
struct combined {
	const dynmo_cpu *k;
	float *out, *dfactor;      /* (n, c), (n, each) */
	const float *inp;          /* the table: rows of c */
	const float *dout;         /* (n, c) */
	const float *factor;       /* (n, each) or NULL */
	const int32_t *rows;       /* (n, each); a negative row is left out */
	int64_t each, c;
};

/* Returns 1 if all n rows are below `table`, else 0. Negative rows are below. */
static int32_t below(const int32_t *rows, int64_t n, int64_t table)
{
	for (int64_t i = 0; i < n; i++)
		if (rows[i] >= table)
			return 0;
	return 1;
}

/* out[i] = Σ_j factor[i, j] · inp[rows[i, j]]. */
static void combine_rows(const void *job, int64_t first, int64_t last)
{
	const struct combined *s = job;
	for (int64_t i = first; i < last; i++)
		s->k->combine_row(s->out + i * s->c, s->inp, s->rows + i * s->each, s->factor ? s->factor + i * s->each : NULL,
			s->each, s->c);
}

int32_t dynmo_cpu_combine_rows(const dynmo_cpu *k, float *out, const float *inp, const int32_t *rows, const float *factor,
	int64_t n, int64_t each, int64_t c, int64_t table)
{
	if (!below(rows, n * each, table))
		return DYNMO_CPU_INDEX;
	dynmo_parallel(k->team, n, dynmo_row_grain(each * c), combine_rows, &(struct combined){
		.k = k, .out = out, .inp = inp, .factor = factor, .rows = rows, .each = each, .c = c});
	return DYNMO_CPU_OK;
}

/* dfactor[i, j] = Σ_c dout[i] · inp[rows[i, j]]. */
static void combine_gradient(const void *job, int64_t first, int64_t last)
{
	const struct combined *s = job;
	for (int64_t i = first; i < last; i++)
		for (int64_t j = i * s->each; j < (i + 1) * s->each; j++)
			s->dfactor[j] = s->rows[j] < 0 ? 0 : s->k->dot(s->dout + i * s->c, s->inp + s->rows[j] * s->c, s->c);
}

int32_t dynmo_cpu_combine_gradient(const dynmo_cpu *k, float *dfactor, const float *dout, const float *inp,
	const int32_t *rows, int64_t n, int64_t each, int64_t c, int64_t table)
{
	if (!below(rows, n * each, table))
		return DYNMO_CPU_INDEX;
	dynmo_parallel(k->team, n, dynmo_row_grain(each * c), combine_gradient, &(struct combined){
		.k = k, .dfactor = dfactor, .inp = inp, .dout = dout, .rows = rows, .each = each, .c = c});
	return DYNMO_CPU_OK;
}
