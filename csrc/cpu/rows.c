/* Calls that are one inner loop: they go straight to the path's table. */
#include <math.h>

#include "kernels.h"

void dynmo_cpu_layernorm_forward(const dynmo_cpu *k, float *out, float *mean, float *rstd, const float *inp,
	const float *weight, const float *bias, int64_t n, int64_t c)
{
	k->layernorm_forward(out, mean, rstd, inp, weight, bias, n, c);
}

void dynmo_cpu_layernorm_backward_input(const dynmo_cpu *k, float *dinp, const float *dout, const float *inp,
	const float *mean, const float *rstd, const float *weight, int64_t n, int64_t c)
{
	k->layernorm_backward_input(dinp, dout, inp, mean, rstd, weight, n, c);
}

void dynmo_cpu_layernorm_backward_weight(const dynmo_cpu *k, float *dweight, float *dbias, const float *dout,
	const float *inp, const float *mean, const float *rstd, int64_t n, int64_t c)
{
	k->layernorm_backward_weight(dweight, dbias, dout, inp, mean, rstd, n, c);
}

void dynmo_cpu_gelu_forward(const dynmo_cpu *k, float *out, const float *inp, int64_t n)
{
	k->gelu_forward(out, inp, n);
}

void dynmo_cpu_gelu_backward(const dynmo_cpu *k, float *dinp, const float *inp, const float *dout, int64_t n)
{
	k->gelu_backward(dinp, inp, dout, n);
}

void dynmo_cpu_add(const dynmo_cpu *k, float *out, const float *a, const float *b, int64_t n)
{
	k->add(out, a, b, n);
}

double dynmo_cpu_sum_squares(const dynmo_cpu *k, const float *x, int64_t n)
{
	return k->sum_squares(x, n);
}

void dynmo_cpu_adamw(const dynmo_cpu *k, float *w, float *m, float *v, const float *g, int64_t n,
	double lr, double beta1, double beta2, double eps, double decay, double grad_scale, int64_t step)
{
	struct adamw a = {
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
	};
	k->adamw(w, m, v, g, n, &a);
}

void dynmo_cpu_mask(const dynmo_cpu *k, float *x, const uint64_t *mask, int64_t n)
{
	k->mask(x, mask, n);
}
