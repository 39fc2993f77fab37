/* Calls on rows of channels: norms, and sums over all rows. Rows go by
 * ranges of rows; a sum over rows by ranges of columns, so that its order is
 * that of the rows. */
#include "kernels.h"

struct norm {
	const dynmo_cpu *k;
	float *out, *mean, *rstd;
	const float *inp, *weight, *bias;
	int64_t c;
	float eps;
};

static void forward(const void *job, int64_t first, int64_t last)
{
	const struct norm *m = job;
	m->k->norm_forward(m->out + first * m->c, m->mean ? m->mean + first : NULL, m->rstd + first,
		m->inp + first * m->c, m->weight, m->bias, last - first, m->c, m->eps);
}

void dynmo_cpu_norm_forward(const dynmo_cpu *k, float *out, float *mean, float *rstd, const float *inp,
	const float *weight, const float *bias, int64_t n, int64_t c, double eps)
{
	dynmo_parallel(k->team, n, dynmo_row_grain(c), forward, &(struct norm){
		k, out, mean, rstd, inp, weight, bias, c, (float)eps});
}

struct norm_gradient {
	const dynmo_cpu *k;
	float *dinp, *dweight, *dbias;
	const float *dout, *inp, *mean, *rstd, *weight;
	int64_t n, c;
};

static void backward_input(const void *job, int64_t first, int64_t last)
{
	const struct norm_gradient *g = job;
	int64_t at = first * g->c;
	g->k->norm_backward_input(g->dinp + at, g->dout + at, g->inp + at, g->mean ? g->mean + first : NULL,
		g->rstd + first, g->weight, last - first, g->c);
}

void dynmo_cpu_norm_backward_input(const dynmo_cpu *k, float *dinp, const float *dout, const float *inp,
	const float *mean, const float *rstd, const float *weight, int64_t n, int64_t c)
{
	dynmo_parallel(k->team, n, dynmo_row_grain(c), backward_input, &(struct norm_gradient){
		.k = k, .dinp = dinp, .dout = dout, .inp = inp, .mean = mean, .rstd = rstd, .weight = weight, .c = c});
}

static void backward_weight(const void *job, int64_t first, int64_t last)
{
	const struct norm_gradient *g = job;
	g->k->norm_backward_weight(g->dweight + first, g->dbias ? g->dbias + first : NULL, g->dout + first,
		g->inp + first, g->mean, g->rstd, g->n, last - first, g->c);
}

void dynmo_cpu_norm_backward_weight(const dynmo_cpu *k, float *dweight, float *dbias, const float *dout,
	const float *inp, const float *mean, const float *rstd, int64_t n, int64_t c)
{
	dynmo_parallel(k->team, c, dynmo_column_grain(n), backward_weight, &(struct norm_gradient){
		.k = k, .dweight = dweight, .dbias = dbias, .dout = dout, .inp = inp, .mean = mean, .rstd = rstd, .n = n, .c = c});
}

struct columns {
	const dynmo_cpu *k;
	float *sums;
	const float *x;
	int64_t n, c;
};

static void column_sums(const void *job, int64_t first, int64_t last)
{
	const struct columns *s = job;
	s->k->column_sums(s->sums + first, s->x + first, s->n, last - first, s->c);
}

void dynmo_column_sums(const dynmo_cpu *k, float *sums, const float *x, int64_t n, int64_t c)
{
	dynmo_parallel(k->team, c, dynmo_column_grain(n), column_sums, &(struct columns){k, sums, x, n, c});
}
