/* Calls on rows of LLaMA models: gated MLPs and rotary positions. */
#include "kernels.h"

struct gated {
	const dynmo_cpu *k;
	float *out;
	const float *dout, *gateup;
	int64_t c;
};

static void swiglu_forward(const void *job, int64_t first, int64_t last)
{
	const struct gated *g = job;
	for (int64_t i = first; i < last; i++) {
		const float *gate = g->gateup + i * 2 * g->c;
		g->k->swiglu_forward(g->out + i * g->c, gate, gate + g->c, g->c);
	}
}

void dynmo_cpu_swiglu_forward(const dynmo_cpu *k, float *out, const float *gateup, int64_t n, int64_t c)
{
	dynmo_parallel(k->team, n, dynmo_row_grain(2 * c), swiglu_forward, &(struct gated){.k = k, .out = out, .gateup = gateup, .c = c});
}

static void swiglu_backward(const void *job, int64_t first, int64_t last)
{
	const struct gated *g = job;
	for (int64_t i = first; i < last; i++) {
		const float *gate = g->gateup + i * 2 * g->c;
		float *dgate = g->out + i * 2 * g->c;
		g->k->swiglu_backward(dgate, dgate + g->c, g->dout + i * g->c, gate, gate + g->c, g->c);
	}
}

void dynmo_cpu_swiglu_backward(const dynmo_cpu *k, float *dgateup, const float *dout, const float *gateup, int64_t n, int64_t c)
{
	dynmo_parallel(k->team, n, dynmo_row_grain(2 * c), swiglu_backward, &(struct gated){
		.k = k, .out = dgateup, .dout = dout, .gateup = gateup, .c = c});
}

struct rotation {
	const dynmo_cpu *k;
	float *qkv, sign;
	const int32_t *positions;
	const float *table;
	int64_t heads, width, hs;
};

static void rotary(const void *job, int64_t first, int64_t last)
{
	const struct rotation *r = job;
	int64_t half = r->hs / 2;
	for (int64_t i = first; i < last; i++) {
		const float *cos = r->table + r->positions[i] * r->hs;
		for (int64_t head = 0; head < r->heads; head++) {
			float *q = r->qkv + i * r->width + head * r->hs;
			r->k->rotate(q, q + half, cos, cos + half, r->sign, half);
		}
	}
}

int32_t dynmo_cpu_rotary(const dynmo_cpu *k, float *qkv, const int32_t *positions, const float *table, int64_t n,
	int64_t heads, int64_t width, int64_t hs, int32_t inverse, int64_t places)
{
	if (!dynmo_inside(positions, n, places))
		return DYNMO_CPU_INDEX;
	dynmo_parallel(k->team, n, dynmo_row_grain(heads * hs), rotary, &(struct rotation){.k = k, .qkv = qkv,
		.sign = inverse ? -1 : 1, .positions = positions, .table = table, .heads = heads, .width = width, .hs = hs});
	return DYNMO_CPU_OK;
}
