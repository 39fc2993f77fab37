/* Calls that work on elements one by one, in ranges of whole mask words. */
#include <math.h>

#include "kernels.h"

struct pointwise {
	const dynmo_cpu *k;
	float *out;
	const float *a, *b;
};

static void add(const void *job, int64_t first, int64_t last)
{
	const struct pointwise *p = job;
	p->k->add(p->out + first, p->a + first, p->b + first, last - first);
}

void dynmo_cpu_add(const dynmo_cpu *k, float *out, const float *a, const float *b, int64_t n)
{
	dynmo_parallel(k->team, n, GRAIN, add, &(struct pointwise){k, out, a, b});
}

struct rounding {
	const dynmo_cpu *k;
	float *sums;
	uint16_t *out;
	const float *x;
	const uint16_t *b;
};

static void to_bfloat16(const void *job, int64_t first, int64_t last)
{
	const struct rounding *r = job;
	r->k->to_bfloat16(r->out + first, r->x + first, last - first);
}

void dynmo_cpu_round(const dynmo_cpu *k, uint16_t *out, const float *x, int64_t n)
{
	dynmo_parallel(k->team, n, GRAIN, to_bfloat16, &(struct rounding){.k = k, .out = out, .x = x});
}

static void add_bfloat16(const void *job, int64_t first, int64_t last)
{
	const struct rounding *r = job;
	r->k->add_bfloat16(r->sums + first, r->x ? r->x + first : NULL, r->b + first, last - first);
}

void dynmo_cpu_add_rounded(const dynmo_cpu *k, float *out, const float *a, const uint16_t *b, int64_t n)
{
	dynmo_parallel(k->team, n, GRAIN, add_bfloat16, &(struct rounding){.k = k, .sums = out, .x = a, .b = b});
}

static void gelu_forward(const void *job, int64_t first, int64_t last)
{
	const struct pointwise *p = job;
	p->k->gelu_forward(p->out + first, p->a + first, last - first);
}

void dynmo_cpu_gelu_forward(const dynmo_cpu *k, float *out, const float *inp, int64_t n)
{
	dynmo_parallel(k->team, n, GRAIN, gelu_forward, &(struct pointwise){k, out, inp, NULL});
}

static void gelu_backward(const void *job, int64_t first, int64_t last)
{
	const struct pointwise *p = job;
	p->k->gelu_backward(p->out + first, p->a + first, p->b + first, last - first);
}

void dynmo_cpu_gelu_backward(const dynmo_cpu *k, float *dinp, const float *inp, const float *dout, int64_t n)
{
	dynmo_parallel(k->team, n, GRAIN, gelu_backward, &(struct pointwise){k, dinp, inp, dout});
}

struct update {
	const dynmo_cpu *k;
	float *w, *m, *v;
	const float *g;
	struct adamw settings;
};

static void adamw(const void *job, int64_t first, int64_t last)
{
	const struct update *u = job;
	u->k->adamw(u->w + first, u->m + first, u->v + first, u->g + first, last - first, &u->settings);
}

void dynmo_cpu_adamw(const dynmo_cpu *k, float *w, float *m, float *v, const float *g, int64_t n, int64_t decayed,
	double lr, double beta1, double beta2, double eps, double decay, double grad_scale, int64_t step)
{
	struct update start = {k, w, m, v, g, {
		.lr = (float)lr,
		.beta1 = (float)beta1,
		.rest1 = (float)(1 - beta1),
		.beta2 = (float)beta2,
		.rest2 = (float)(1 - beta2),
		.eps = (float)eps,
		.decay = (float)decay,
		.grad_scale = (float)grad_scale,
		.mscale = (float)(1 / (1 - pow(beta1, (double)step))),
		.vscale = (float)(1 / (1 - pow(beta2, (double)step))),
	}};
	struct update rest = {k, w + decayed, m + decayed, v + decayed, g + decayed, start.settings};
	rest.settings.decay = 0;
	dynmo_parallel(k->team, decayed, GRAIN, adamw, &start);
	dynmo_parallel(k->team, n - decayed, GRAIN, adamw, &rest);
}

struct masked {
	const dynmo_cpu *k;
	float *x;
	const uint64_t *mask;
};

static void mask(const void *job, int64_t first, int64_t last)
{
	const struct masked *m = job;
	m->k->mask(m->x + first, m->mask + first / 64, last - first);
}

void dynmo_cpu_mask(const dynmo_cpu *k, float *x, const uint64_t *bits, int64_t n)
{
	dynmo_parallel(k->team, n, GRAIN, mask, &(struct masked){k, x, bits});
}

struct squares {
	const dynmo_cpu *k;
	double *sums; /* one for each block */
	const float *x;
	int64_t n;
};

/* Items are blocks. */
static void square_sums(const void *job, int64_t first, int64_t last)
{
	const struct squares *s = job;
	s->k->square_sums(s->sums + first, s->x + first * BLOCK, dynmo_min(s->n, last * BLOCK) - first * BLOCK);
}

void dynmo_cpu_sum_squares(const dynmo_cpu *k, double *out, const float *x, int64_t n)
{
	dynmo_parallel(k->team, (n + BLOCK - 1) / BLOCK, GRAIN / BLOCK, square_sums, &(struct squares){k, out, x, n});
}
