/* Tokens by bucket: the largest of the projections of queries and keys, and a stable
 * counting sort. Items are heads of sequences. Keys that are made of queries. */
#include "attention.h"

#include <math.h>

struct hash {
	const dynmo_cpu *k;
	float *work;
	double *attended; /* of each item */
	int32_t *order, *starts;
	const float *qkv;
	const int32_t *offsets;
	const float *projections;
	int64_t buckets, longest, c, nh;
	int32_t shared;
};

/* The workspace of each member: the bucket of each token, and the next place of each
 * bucket. */
static int64_t room(int64_t longest, int64_t buckets) { return dynmo_lines(longest) + dynmo_lines(buckets); }

int64_t dynmo_cpu_attention_hash_work(const dynmo_cpu *k, int64_t longest, int64_t buckets, int64_t b, int64_t nh)
{
	return dynmo_lines(1) + dynmo_lines(2 * b * nh) + dynmo_team_size(k->team) * room(longest, buckets);
}

/* The place of the largest product of x with half vectors r, and with their opposites. */
static int32_t bucket_of(const dynmo_cpu *k, const float *x, const float *r, int64_t half, int64_t hs)
{
	float largest = -INFINITY, least = INFINITY;
	int32_t up = 0, down = 0;
	for (int64_t i = 0; i < half; i++) {
		float product = k->dot(x, r + i * hs, hs);
		if (product > largest) {
			largest = product;
			up = (int32_t)i;
		}
		if (product < least) {
			least = product;
			down = (int32_t)(half + i);
		}
	}
	return -least > largest ? down : up;
}

/* Sorts t rows x, which are 3c apart. starts has buckets + 1. */
static void sort(const struct hash *a, int32_t *order, int32_t *starts, int32_t *bucket, int32_t *next,
	const float *projections, const float *x, int64_t t, int64_t hs)
{
	memset(starts, 0, (size_t)(a->buckets + 1) * sizeof *starts);
	for (int64_t i = 0; i < t; i++) {
		bucket[i] = bucket_of(a->k, x + i * 3 * a->c, projections, a->buckets / 2, hs);
		starts[bucket[i] + 1]++;
	}
	for (int64_t b = 0; b < a->buckets; b++) {
		starts[b + 1] += starts[b];
		next[b] = starts[b];
	}
	for (int64_t i = 0; i < t; i++)
		order[next[bucket[i]]++] = (int32_t)i;
}

static void hash(const void *job, int64_t first, int64_t last)
{
	const struct hash *a = job;
	int64_t c = a->c, hs = c / a->nh;
	int32_t *bucket = (int32_t *)(a->work + dynmo_team_member() * room(a->longest, a->buckets));
	int32_t *next = bucket + dynmo_lines(a->longest);
	for (int64_t i = first; i < last; i++) {
		struct head h = dynmo_head(a->offsets, c, a->nh, a->nh, i);
		struct sorted s = dynmo_sorted(a->order, a->starts, a->buckets, h, i);
		const float *own = a->projections + i % a->nh * (a->buckets / 2) * hs, *keys = a->qkv + h.in + (a->shared ? 0 : c);
		sort(a, (int32_t *)s.queries, (int32_t *)s.query_start, bucket, next, own, a->qkv + h.in, h.t, hs);
		sort(a, (int32_t *)s.keys, (int32_t *)s.key_start, bucket, next, own, keys, h.t, hs);
		dynmo_seen(bucket, s, a->buckets);
		a->attended[i] = 0;
		for (int64_t j = 0; j < h.t; j++)
			a->attended[i] += bucket[j];
	}
}

int32_t dynmo_cpu_attention_hash(const dynmo_cpu *k, float *work, int32_t *order, int32_t *starts, double *pairs,
	const float *qkv, const int32_t *offsets, const float *projections, int32_t shared, int64_t buckets, int64_t b,
	int64_t longest, int64_t n, int64_t c, int64_t nh)
{
	if (!dynmo_sequences(offsets, b, longest, n))
		return DYNMO_CPU_INDEX;
	double *attended = (double *)dynmo_align(work);
	dynmo_parallel(k->team, b * nh, 1, hash, &(struct hash){.k = k, .work = (float *)attended + dynmo_lines(2 * b * nh),
		.attended = attended, .order = order, .starts = starts, .qkv = qkv, .offsets = offsets,
		.projections = projections, .shared = shared, .buckets = buckets, .longest = longest, .c = c, .nh = nh});
	pairs[0] = pairs[1] = 0;
	for (int64_t i = 0; i < b * nh; i++) {
		double t = offsets[i / nh + 1] - offsets[i / nh];
		pairs[0] += attended[i];
		pairs[1] += t * (t + 1) / 2;
	}
	return DYNMO_CPU_OK;
}

struct shared {
	const dynmo_cpu *k;
	float *out;
	const float *inp, *qkv;
	int64_t c, nh;
};

static const float LEAST = 1e-12f; /* as package kernel has it */

static void share_keys(const void *job, int64_t first, int64_t last)
{
	const struct shared *s = job;
	int64_t c = s->c, hs = c / s->nh;
	for (int64_t i = first; i < last; i++) {
		const float *q = s->inp + i * 2 * c;
		float *row = s->out + i * 3 * c, *key = row + c;
		memcpy(row, q, (size_t)c * sizeof *q);
		memcpy(key, q, (size_t)c * sizeof *q);
		memcpy(row + 2 * c, q + c, (size_t)c * sizeof *q);
		for (int64_t at = 0; at < c; at += hs)
			s->k->scale_row(key + at, 1 / fmaxf(sqrtf(s->k->dot(q + at, q + at, hs)), LEAST), hs);
	}
}

void dynmo_cpu_share_keys(const dynmo_cpu *k, float *qkv, const float *qv, int64_t n, int64_t c, int64_t nh)
{
	dynmo_parallel(k->team, n, dynmo_row_grain(3 * c), share_keys, &(struct shared){.k = k, .out = qkv, .inp = qv, .c = c, .nh = nh});
}

static void share_keys_gradient(const void *job, int64_t first, int64_t last)
{
	const struct shared *s = job;
	int64_t c = s->c, hs = c / s->nh;
	for (int64_t i = first; i < last; i++) {
		const float *d = s->inp + i * 3 * c;
		float *out = s->out + i * 2 * c;
		memcpy(out + c, d + 2 * c, (size_t)c * sizeof *d);
		for (int64_t at = 0; at < c; at += hs) {
			const float *q = s->qkv + i * 3 * c + at, *dq = d + at, *dk = dq + c;
			float length = sqrtf(s->k->dot(q, q, hs)), along = 0;
			if (length >= LEAST)
				along = s->k->dot(q, dk, hs) / length / length;
			length = 1 / fmaxf(length, LEAST);
			for (int64_t x = 0; x < hs; x++)
				out[at + x] = dq[x] + (dk[x] - q[x] * along) * length;
		}
	}
}

void dynmo_cpu_share_keys_gradient(
	const dynmo_cpu *k, float *dqv, const float *dqkv, const float *qkv, int64_t n, int64_t c, int64_t nh)
{
	dynmo_parallel(k->team, n, dynmo_row_grain(3 * c), share_keys_gradient, &(struct shared){
		.k = k, .out = dqv, .inp = dqkv, .qkv = qkv, .c = c, .nh = nh});
}
