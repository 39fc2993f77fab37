/* Softmax and cross-entropy over slices of the vocabulary. Items are rows. */
#include <math.h>

#include "kernels.h"

/* Sets the statistics of row i. before has those of the columns to the left, NULL if
 * there are none; max and sum belong to columns [first, first + v). */
static void merge(double *out, const double *before, const float *row, double max, double sum, int64_t target,
	int64_t i, int64_t n, int64_t v, int64_t first)
{
	int64_t column = target - first;
	double at = before ? before[2 * n + i] : 0;
	if (before) /* max is at least before[i] */
		sum += before[n + i] * exp(before[i] - max);
	out[i] = max;
	out[n + i] = sum;
	out[2 * n + i] = column >= 0 && column < v ? row[column] : at;
}

/* The largest of a row and of the columns to its left. */
static float largest(const dynmo_cpu *k, const double *before, const float *row, int64_t i, int64_t v)
{
	float max = k->row_max(row, v);
	return before && before[i] > max ? (float)before[i] : max;
}

struct softmax {
	const dynmo_cpu *k;
	double *out;
	const double *before; /* for the gradient: of all columns */
	float *logits;
	const int32_t *targets;
	double scale;
	int64_t n, v, first;
};

static void softmax_merge(const void *job, int64_t first, int64_t last)
{
	const struct softmax *s = job;
	for (int64_t i = first; i < last; i++) {
		const float *row = s->logits + i * s->v;
		float max = largest(s->k, s->before, row, i, s->v);
		merge(s->out, s->before, row, max, s->k->sum_exp(row, max, s->v), s->targets[i], i, s->n, s->v, s->first);
	}
}

int32_t dynmo_cpu_softmax_merge(const dynmo_cpu *k, double *out, const double *before, const float *logits,
	const int32_t *targets, int64_t n, int64_t v, int64_t first)
{
	if (!dynmo_inside(targets, n, INT32_MAX))
		return DYNMO_CPU_INDEX;
	dynmo_parallel(k->team, n, dynmo_row_grain(v), softmax_merge,
		&(struct softmax){k, out, before, (float *)logits, targets, 0, n, v, first});
	return DYNMO_CPU_OK;
}

static void softmax_gradient(const void *job, int64_t first, int64_t last)
{
	const struct softmax *s = job;
	const double *max = s->before, *sum = max + s->n, *at = sum + s->n;
	for (int64_t i = first; i < last; i++) {
		float *row = s->logits + i * s->v;
		int64_t column = s->targets[i] - s->first;
		s->k->scaled_exp_row(row, (float)max[i], (float)(s->scale / sum[i]), s->v);
		if (column >= 0 && column < s->v)
			row[column] = (float)(s->scale * (exp(at[i] - max[i]) / sum[i] - 1));
	}
}

int32_t dynmo_cpu_softmax_gradient(const dynmo_cpu *k, float *logits, const double *stats, const int32_t *targets,
	double scale, int64_t n, int64_t v, int64_t first)
{
	if (!dynmo_inside(targets, n, INT32_MAX))
		return DYNMO_CPU_INDEX;
	dynmo_parallel(k->team, n, dynmo_row_grain(v), softmax_gradient,
		&(struct softmax){k, NULL, stats, logits, targets, scale, n, v, first});
	return DYNMO_CPU_OK;
}

static void cross_entropy(const void *job, int64_t first, int64_t last)
{
	const struct softmax *s = job;
	double *sum = s->out + s->n;
	for (int64_t i = first; i < last; i++) {
		float *row = s->logits + i * s->v;
		int64_t column = s->targets[i] - s->first;
		float max = largest(s->k, s->before, row, i, s->v);
		merge(s->out, s->before, row, max, 0, s->targets[i], i, s->n, s->v, s->first);
		sum[i] += s->k->exp_sum(row, max, s->v);
		double p = column >= 0 ? row[column] / sum[i] : 0;
		s->k->scale_row(row, (float)(s->scale / sum[i]), s->v);
		if (column >= 0)
			row[column] = (float)(s->scale * (p - 1));
	}
}

int32_t dynmo_cpu_cross_entropy(const dynmo_cpu *k, double *loss, double *out, const double *before, float *logits,
	const int32_t *targets, double scale, int64_t n, int64_t v, int64_t first)
{
	if (!dynmo_inside(targets, n, first + v))
		return DYNMO_CPU_INDEX;
	dynmo_parallel(k->team, n, dynmo_row_grain(v), cross_entropy,
		&(struct softmax){k, out, before, logits, targets, scale, n, v, first});
	double total = 0;
	for (int64_t i = 0; i < n; i++)
		total += log(out[n + i]) + (out[i] - out[2 * n + i]);
	*loss = total;
	return DYNMO_CPU_OK;
}

struct likeliest {
	int32_t *out;
	const float *logits;
	int64_t v;
};

static void likeliest(const void *job, int64_t first, int64_t last)
{
	const struct likeliest *s = job;
	for (int64_t i = first; i < last; i++) {
		const float *row = s->logits + i * s->v;
		float largest = -INFINITY;
		s->out[i] = 0;
		for (int64_t j = 0; j < s->v; j++)
			if (row[j] > largest) {
				largest = row[j];
				s->out[i] = (int32_t)j;
			}
	}
}

void dynmo_cpu_likeliest(const dynmo_cpu *k, int32_t *out, const float *logits, int64_t n, int64_t v)
{
	dynmo_parallel(k->team, n, dynmo_row_grain(v), likeliest, &(struct likeliest){out, logits, v});
}
