/* Tokens by bucket: signs of random projections of queries and keys, and a stable
 * counting sort. Items are heads of sequences. */
#include "attention.h"

struct hash {
	const dynmo_cpu *k;
	float *work;
	double *attended; /* of each item */
	int32_t *order, *starts;
	const float *qkv;
	const int32_t *offsets;
	uint64_t key;
	int64_t buckets, longest, c, nh;
};

static int64_t bits_of(int64_t buckets) { return 63 - __builtin_clzll((unsigned long long)buckets); }

/* The workspace of each member: signs, the bucket of each token, and the next place of
 * each bucket. */
static int64_t room(int64_t longest, int64_t buckets, int64_t hs)
{
	return dynmo_lines(bits_of(buckets) * hs) + dynmo_lines(longest) + dynmo_lines(buckets);
}

int64_t dynmo_cpu_attention_hash_work(const dynmo_cpu *k, int64_t longest, int64_t buckets, int64_t b, int64_t c, int64_t nh)
{
	return dynmo_lines(1) + dynmo_lines(2 * b * nh) + dynmo_team_size(k->team) * room(longest, buckets, c / nh);
}

/* Word i of the signs: kernel.Signs. */
static uint64_t word(uint64_t key, int64_t i)
{
	uint64_t x = key + ((uint64_t)i + 1) * 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static void draw_signs(float *signs, const struct hash *a, int64_t number, int64_t hs)
{
	int64_t bits = bits_of(a->buckets), words = (hs + 63) / 64;
	for (int64_t bit = 0; bit < bits; bit++)
		for (int64_t x = 0; x < hs; x++)
			signs[bit * hs + x] = word(a->key, (number * bits + bit) * words + x / 64) >> x % 64 & 1 ? -1 : 1;
}

/* Sorts t rows x, which are 3c apart. starts has buckets + 1. */
static void sort(const struct hash *a, int32_t *order, int32_t *starts, int32_t *bucket, int32_t *next, const float *signs,
	const float *x, int64_t t, int64_t hs)
{
	int64_t bits = bits_of(a->buckets);
	memset(starts, 0, (size_t)(a->buckets + 1) * sizeof *starts);
	for (int64_t i = 0; i < t; i++) {
		bucket[i] = 0;
		for (int64_t bit = 0; bit < bits; bit++)
			bucket[i] |= (int32_t)(a->k->dot(x + i * 3 * a->c, signs + bit * hs, hs) > 0) << bit;
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
	float *signs = a->work + dynmo_team_member() * room(a->longest, a->buckets, hs);
	int32_t *bucket = (int32_t *)(signs + dynmo_lines(bits_of(a->buckets) * hs)), *next = bucket + dynmo_lines(a->longest);
	for (int64_t i = first; i < last; i++) {
		struct head h = dynmo_head(a->offsets, c, a->nh, a->nh, i);
		struct sorted s = dynmo_sorted(a->order, a->starts, a->buckets, h, i);
		draw_signs(signs, a, i % a->nh, hs);
		sort(a, (int32_t *)s.queries, (int32_t *)s.query_start, bucket, next, signs, a->qkv + h.in, h.t, hs);
		sort(a, (int32_t *)s.keys, (int32_t *)s.key_start, bucket, next, signs, a->qkv + h.in + c, h.t, hs);
		dynmo_seen(bucket, s, a->buckets);
		a->attended[i] = 0;
		for (int64_t j = 0; j < h.t; j++)
			a->attended[i] += bucket[j];
	}
}

int32_t dynmo_cpu_attention_hash(const dynmo_cpu *k, float *work, int32_t *order, int32_t *starts, double *pairs,
	const float *qkv, const int32_t *offsets, uint64_t key, int64_t buckets, int64_t b, int64_t longest, int64_t n,
	int64_t c, int64_t nh)
{
	if (!dynmo_sequences(offsets, b, longest, n))
		return DYNMO_CPU_INDEX;
	double *attended = (double *)dynmo_align(work);
	dynmo_parallel(k->team, b * nh, 1, hash, &(struct hash){.k = k, .work = (float *)attended + dynmo_lines(2 * b * nh),
		.attended = attended, .order = order, .starts = starts, .qkv = qkv, .offsets = offsets, .key = key,
		.buckets = buckets, .longest = longest, .c = c, .nh = nh});
	pairs[0] = pairs[1] = 0;
	for (int64_t i = 0; i < b * nh; i++) {
		double t = offsets[i / nh + 1] - offsets[i / nh];
		pairs[0] += attended[i];
		pairs[1] += t * (t + 1) / 2;
	}
	return DYNMO_CPU_OK;
}
