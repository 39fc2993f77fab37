/* Causal multi-head attention by tiles of query rows. A tile's scores reach
 * only to the diagonal; they live in the workspace, (TILE, t) floats, and are
 * made again in the backward pass from the stored log-sum-exp (Dao et al. 2022,
 * with the tile of keys as wide as the row). */
#include <math.h>

#include "attention.h"

/* Sets each row of s above the diagonal to 0. Row i is query first + i. */
static void clear_future(float *s, int64_t first, int64_t rows, int64_t keys)
{
	for (int64_t i = 0; i < rows; i++)
		memset(s + i * keys + first + i + 1, 0, (size_t)(rows - i - 1) * sizeof *s);
}

/* One head: q, k, v (t, hs) with row stride ld, out (t, hs) with row stride c. */
static void head_forward(const dynmo_cpu *kern, float *s, float *out, float *lse, const float *q,
	const float *k, const float *v, int64_t t, int64_t ld, int64_t c, int64_t hs)
{
	float scale = 1 / sqrtf((float)hs);
	for (int64_t first = 0; first < t; first += TILE) {
		int64_t rows = dynmo_min(TILE, t - first), keys = first + rows;
		float inverse[TILE];
		dynmo_sgemm(0, 1, rows, keys, hs, scale, q + first * ld, ld, k, ld, 0, s, keys);
		for (int64_t i = 0; i < rows; i++) {
			int64_t seen = first + i + 1;
			float max = kern->row_max(s + i * keys, seen);
			double sum = kern->exp_sum(s + i * keys, max, seen);
			inverse[i] = (float)(1 / sum);
			lse[first + i] = (float)(max + log(sum));
		}
		clear_future(s, first, rows, keys);
		dynmo_sgemm(0, 0, rows, hs, keys, 1, s, keys, v, ld, 0, out + first * c, c);
		for (int64_t i = 0; i < rows; i++)
			kern->scale_row(out + (first + i) * c, inverse[i], hs);
	}
}

/* A call. dqkv and dout are the backward pass's, which only reads out and lse. */
struct attention {
	const dynmo_cpu *k;
	float *work, *out, *lse, *dqkv;
	const float *qkv, *dout;
	const int32_t *offsets;
	int64_t longest, c, nh, kv;
};

/* The workspace of each member. */
static int64_t room(int64_t longest) { return dynmo_lines(2 * TILE * longest); }

int64_t dynmo_cpu_attention_work(const dynmo_cpu *k, int64_t longest)
{
	return dynmo_lines(1) + dynmo_team_size(k->team) * room(longest);
}

/* Items are heads of sequences. */
static void forward(const void *job, int64_t first, int64_t last)
{
	const struct attention *a = job;
	int64_t c = a->c, ld = dynmo_width(c, a->nh, a->kv);
	float *s = a->work + dynmo_team_member() * room(a->longest);
	for (int64_t i = first; i < last; i++) {
		struct head h = dynmo_head(a->offsets, c, a->nh, a->kv, i);
		head_forward(a->k, s, a->out + h.at, a->lse + h.sums, a->qkv + h.in, a->qkv + h.key, a->qkv + h.value, h.t, ld, c,
			c / a->nh);
	}
}

int32_t dynmo_cpu_attention_forward(const dynmo_cpu *k, float *work, float *out, float *lse, const float *qkv,
	const int32_t *offsets, int64_t b, int64_t longest, int64_t n, int64_t c, int64_t nh, int64_t kv)
{
	if (!dynmo_sequences(offsets, b, longest, n))
		return DYNMO_CPU_INDEX;
	dynmo_parallel(k->team, b * nh, 1, forward, &(struct attention){.k = k, .work = dynmo_align(work), .out = out,
		.lse = lse, .qkv = qkv, .offsets = offsets, .longest = longest, .c = c, .nh = nh, .kv = kv});
	return DYNMO_CPU_OK;
}

/* One head. dk and dv, rows ld apart as q, k, v and dq, add up over the tiles, in
 * ascending order. */
static void head_backward(const dynmo_cpu *kern, float *p, float *dp, float *dq, float *dk, float *dv,
	const float *dout, const float *q, const float *k, const float *v, const float *out, const float *lse,
	int64_t t, int64_t ld, int64_t c, int64_t hs)
{
	float scale = 1 / sqrtf((float)hs);
	for (int64_t first = 0; first < t; first += TILE) {
		int64_t rows = dynmo_min(TILE, t - first), keys = first + rows;
		const float *q0 = q + first * ld, *dout0 = dout + first * c, *out0 = out + first * c;
		dynmo_sgemm(0, 1, rows, keys, hs, scale, q0, ld, k, ld, 0, p, keys);
		dynmo_sgemm(0, 1, rows, keys, hs, 1, dout0, c, v, ld, 0, dp, keys);
		for (int64_t i = 0; i < rows; i++) {
			int64_t seen = first + i + 1;
			kern->exp_row(p + i * keys, lse[first + i], seen);
			float delta = kern->dot(dout0 + i * c, out0 + i * c, hs);
			kern->softmax_backward_row(dp + i * keys, p + i * keys, delta, seen);
		}
		clear_future(p, first, rows, keys);
		clear_future(dp, first, rows, keys);
		dynmo_sgemm(1, 0, keys, hs, rows, 1, p, keys, dout0, c, 1, dv, ld);
		dynmo_sgemm(0, 0, rows, hs, keys, scale, dp, keys, k, ld, 0, dq + first * ld, ld);
		dynmo_sgemm(1, 0, keys, hs, rows, scale, dp, keys, q0, ld, 1, dk, ld);
	}
}

static void clear_rows(float *x, int64_t rows, int64_t ld, int64_t hs)
{
	for (int64_t i = 0; i < rows; i++)
		memset(x + i * ld, 0, (size_t)hs * sizeof *x);
}

/* Items are the heads of sequences that share keys, one after the other. */
static void backward(const void *job, int64_t first, int64_t last)
{
	const struct attention *a = job;
	int64_t c = a->c, hs = c / a->nh, ld = dynmo_width(c, a->nh, a->kv), heads = a->nh / a->kv;
	float *p = a->work + dynmo_team_member() * room(a->longest), *dp = p + TILE * a->longest;
	for (int64_t i = first * heads; i < last * heads; i++) {
		struct head h = dynmo_head(a->offsets, c, a->nh, a->kv, i);
		float *dk = a->dqkv + h.key, *dv = a->dqkv + h.value;
		if (i % heads == 0) {
			clear_rows(dk, h.t, ld, hs);
			clear_rows(dv, h.t, ld, hs);
		}
		head_backward(a->k, p, dp, a->dqkv + h.in, dk, dv, a->dout + h.at, a->qkv + h.in, a->qkv + h.key, a->qkv + h.value,
			a->out + h.at, a->lse + h.sums, h.t, ld, c, hs);
	}
}

int32_t dynmo_cpu_attention_backward(const dynmo_cpu *k, float *work, float *dqkv, const float *dout, const float *qkv,
	const float *out, const float *lse, const int32_t *offsets, int64_t b, int64_t longest, int64_t n, int64_t c, int64_t nh,
	int64_t kv)
{
	if (!dynmo_sequences(offsets, b, longest, n))
		return DYNMO_CPU_INDEX;
	dynmo_parallel(k->team, b * kv, 1, backward, &(struct attention){.k = k, .work = dynmo_align(work),
		.out = (float *)out, .lse = (float *)lse, .dqkv = dqkv, .qkv = qkv, .dout = dout, .offsets = offsets,
		.longest = longest, .c = c, .nh = nh, .kv = kv});
	return DYNMO_CPU_OK;
}
