/* The two ends of the model, where tokens index tables. */
#include <math.h>

#include "kernels.h"

static int32_t inside(const int32_t *index, int64_t n, int64_t table)
{
	for (int64_t i = 0; i < n; i++)
		if (index[i] < 0 || index[i] >= table)
			return 0;
	return 1;
}

int32_t dynmo_cpu_embedding_forward(const dynmo_cpu *k, float *out, const int32_t *tokens, const float *wte,
	const float *wpe, int64_t b, int64_t t, int64_t c, int64_t vocabulary)
{
	if (!inside(tokens, b * t, vocabulary))
		return DYNMO_CPU_INDEX;
	for (int64_t i = 0; i < b * t; i++)
		k->add(out + i * c, wte + tokens[i] * c, wpe + i % t * c, c);
	return DYNMO_CPU_OK;
}

int32_t dynmo_cpu_embedding_backward(const dynmo_cpu *k, float *dwte, float *dwpe, const float *dout,
	const int32_t *tokens, int64_t b, int64_t t, int64_t c, int64_t vocabulary)
{
	if (!inside(tokens, b * t, vocabulary))
		return DYNMO_CPU_INDEX;
	for (int64_t i = 0; i < b * t; i++) {
		float *token = dwte + tokens[i] * c, *position = dwpe + i % t * c;
		k->add(token, token, dout + i * c, c);
		k->add(position, position, dout + i * c, c);
	}
	return DYNMO_CPU_OK;
}

/* What is known of row i: before says what of the columns to the left, NULL if
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

/* The largest of a row and of what is known of the columns to its left. */
static float largest(const dynmo_cpu *k, const double *before, const float *row, int64_t i, int64_t v)
{
	float max = k->row_max(row, v);
	return before && before[i] > max ? (float)before[i] : max;
}

int32_t dynmo_cpu_softmax_merge(const dynmo_cpu *k, double *out, const double *before, const float *logits,
	const int32_t *targets, int64_t n, int64_t v, int64_t first)
{
	if (!inside(targets, n, INT32_MAX))
		return DYNMO_CPU_INDEX;
	for (int64_t i = 0; i < n; i++) {
		const float *row = logits + i * v;
		float max = largest(k, before, row, i, v);
		merge(out, before, row, max, k->sum_exp(row, max, v), targets[i], i, n, v, first);
	}
	return DYNMO_CPU_OK;
}

int32_t dynmo_cpu_softmax_gradient(const dynmo_cpu *k, float *logits, const double *stats, const int32_t *targets,
	double scale, int64_t n, int64_t v, int64_t first)
{
	if (!inside(targets, n, INT32_MAX))
		return DYNMO_CPU_INDEX;
	for (int64_t i = 0; i < n; i++) {
		float *row = logits + i * v;
		int64_t column = targets[i] - first;
		k->scaled_exp_row(row, (float)stats[i], (float)(scale / stats[n + i]), v);
		if (column >= 0 && column < v)
			row[column] = (float)(scale * (exp(stats[2 * n + i] - stats[i]) / stats[n + i] - 1));
	}
	return DYNMO_CPU_OK;
}

int32_t dynmo_cpu_cross_entropy(const dynmo_cpu *k, double *loss, double *out, const double *before, float *logits,
	const int32_t *targets, double scale, int64_t n, int64_t v, int64_t first)
{
	if (!inside(targets, n, first + v))
		return DYNMO_CPU_INDEX;
	double total = 0;
	for (int64_t i = 0; i < n; i++) {
		float *row = logits + i * v;
		int64_t column = targets[i] - first;
		float max = largest(k, before, row, i, v);
		merge(out, before, row, max, 0, targets[i], i, n, v, first);
		out[n + i] += k->exp_sum(row, max, v);
		double sum = out[n + i];
		total += log(sum) + (out[i] - out[2 * n + i]);
		double p = column >= 0 ? row[column] / sum : 0;
		k->scale_row(row, (float)(scale / sum), v);
		if (column >= 0)
			row[column] = (float)(scale * (p - 1));
	}
	*loss = total;
	return DYNMO_CPU_OK;
}
