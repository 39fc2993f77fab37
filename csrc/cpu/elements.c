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

struct fixed {
	const dynmo_cpu *k;
	int64_t *sum;
	const int64_t *other;
	const float *x;
	float *out;
	uint32_t *most; /* of all ranges */
};

/* Adds to a bound, which stays at the largest number once it is there. */
static void raise_bound(int64_t *bound, int64_t by)
{
	*bound = by > INT64_MAX - *bound ? INT64_MAX : *bound + by;
}

static void accumulate_fixed(const void *job, int64_t first, int64_t last)
{
	const struct fixed *f = job;
	uint32_t most = f->k->accumulate_fixed(f->sum + first, f->x + first, last - first);
	uint32_t before = __atomic_load_n(f->most, __ATOMIC_RELAXED);
	while (before < most && !__atomic_compare_exchange_n(f->most, &before, most, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
	}
}

void dynmo_cpu_accumulate_fixed(const dynmo_cpu *k, int64_t *sum, const float *x, int64_t n)
{
	uint32_t most = 0;
	dynmo_parallel(k->team, n, GRAIN, accumulate_fixed, &(struct fixed){.k = k, .sum = sum, .x = x, .most = &most});
	float largest;
	memcpy(&largest, &most, sizeof largest);
	raise_bound(sum + n, most < DYNMO_FIXED_END ? (int64_t)ceilf(largest * 0x1p50f) : INT64_MAX);
}

static void add_fixed(const void *job, int64_t first, int64_t last)
{
	const struct fixed *f = job;
	f->k->add_fixed(f->sum + first, f->other + first, last - first);
}

void dynmo_cpu_add_fixed(const dynmo_cpu *k, int64_t *sum, const int64_t *other, int64_t n)
{
	dynmo_parallel(k->team, n, GRAIN, add_fixed, &(struct fixed){.k = k, .sum = sum, .other = other});
	raise_bound(sum + n, other[n]);
}

static void round_fixed(const void *job, int64_t first, int64_t last)
{
	const struct fixed *f = job;
	f->k->round_fixed(f->out + first, f->other + first, last - first);
}

void dynmo_cpu_round_fixed(const dynmo_cpu *k, float *out, const int64_t *sum, int64_t n)
{
	if (sum[n] == INT64_MAX) {
		for (int64_t i = 0; i < n; i++)
			out[i] = NAN;
		return;
	}
	dynmo_parallel(k->team, n, GRAIN, round_fixed, &(struct fixed){.k = k, .out = out, .other = sum});
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
