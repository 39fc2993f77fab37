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

int32_t dynmo_cpu_cross_entropy(const dynmo_cpu *k, double *loss, float *logits, const int32_t *targets,
	double scale, int64_t n, int64_t v)
{
	if (!inside(targets, n, v))
		return DYNMO_CPU_INDEX;
	double total = 0;
	for (int64_t i = 0; i < n; i++) {
		float *row = logits + i * v, at = row[targets[i]];
		float max = k->row_max(row, v);
		double sum = k->exp_sum(row, max, v), p = row[targets[i]] / sum;
		total += log(sum) + ((double)max - at);
		k->scale_row(row, (float)(scale / sum), v);
		row[targets[i]] = (float)(scale * (p - 1));
	}
	*loss = total;
	return DYNMO_CPU_OK;
}
