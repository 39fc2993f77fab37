/* Causal attention within buckets: a query attends to the keys of its bucket that are not later in
 * the sequence. attention_hash.c makes the buckets. A head's queries, keys and values are gathered
 * bucket by bucket, and within a bucket in the order of the sequence. The keys that a query sees are
 * then the first ones of its bucket, and a later query sees at least as many. So the scores of a bucket
 * fill a staircase, in place of attention.c's triangle, and are computed in tiles of the same size. */
#include <math.h>

#include "attention.h"

/* A call. The backward pass has dqkv and dout too, and only reads out and lse. */
struct sparse {
	const dynmo_cpu *k;
	float *work, *out, *lse, *dqkv;
	const float *qkv, *dout;
	const int32_t *offsets; /* (b + 1): where each sequence begins */
	const int32_t *order;   /* by head: its queries, then its keys, as positions in the sequence by bucket */
	const int32_t *starts;  /* (b, nh, 2, buckets + 1): where each bucket begins in a head's queries and keys */
	int64_t buckets, longest, c, nh; /* longest: tokens of the longest sequence */
};

/* The working copy of a head, in the order of the buckets. t is the tokens of its sequence. out, dout
 * and lse keep the order of tokens. */
struct gathered {
	struct head h;
	struct sorted by;
	float *p, *dp;    /* (TILE, t): probabilities of a tile, and their gradients */
	float *q, *k, *v; /* (t, hs) */
	float *dy, *rows; /* (TILE, hs): dout of a tile; its output or its dq */
	float *dk, *dv;   /* (t, hs) */
	int32_t *seen;    /* (t): how many keys of its bucket each query sees */
};

/* A tile: queries [query, query + rows) of a bucket, and keys [key, key + keys), all that any of these
 * queries sees. */
struct tile {
	int64_t query, rows, key, keys;
};

/* Returns the floats of workspace that each thread needs. */
static int64_t room(int64_t longest, int64_t hs)
{
	return dynmo_lines(2 * TILE * longest) + dynmo_lines(5 * longest * hs) + dynmo_lines(2 * TILE * hs) + dynmo_lines(longest);
}

int64_t dynmo_cpu_sparse_attention_work(const dynmo_cpu *k, int64_t longest, int64_t c, int64_t nh)
{
	return dynmo_lines(1) + dynmo_team_size(k->team) * room(longest, c / nh);
}

/* Returns 1 if the positions of order and the starts of buckets are inside their heads, else 0. */
static int inside(const int32_t *order, const int32_t *starts, int64_t buckets, const int32_t *offsets, int64_t b, int64_t nh)
{
	for (int64_t i = 0; i < b * nh; i++) {
		int64_t first = offsets[i / nh], t = offsets[i / nh + 1] - first;
		const int32_t *of = order + 2 * (first * nh + i % nh * t);
		if (!dynmo_inside(of, 2 * t, t))
			return 0;
		for (int64_t side = 0; side < 2; side++) {
			const int32_t *start = starts + (2 * i + side) * (buckets + 1);
			if (start[0] != 0 || start[buckets] != t)
				return 0;
			for (int64_t bucket = 0; bucket < buckets; bucket++)
				if (start[bucket + 1] < start[bucket])
					return 0;
		}
	}
	return 1;
}

/* dst (n, hs): row i is row at[i] of src, whose rows are ld floats apart. */
static void gather(float *dst, const float *src, const int32_t *at, int64_t n, int64_t ld, int64_t hs)
{
	for (int64_t i = 0; i < n; i++)
		memcpy(dst + i * hs, src + at[i] * ld, (size_t)hs * sizeof *dst);
}

/* Row at[i] of dst, whose rows are ld floats apart, becomes row i of src (n, hs). */
static void scatter(float *dst, const float *src, const int32_t *at, int64_t n, int64_t ld, int64_t hs)
{
	for (int64_t i = 0; i < n; i++)
		memcpy(dst + at[i] * ld, src + i * hs, (size_t)hs * sizeof *dst);
}

/* Gathers head i of all sequences into the workspace of this thread. */
static struct gathered gather_head(const struct sparse *a, int64_t i)
{
	int64_t c = a->c, hs = c / a->nh, size = a->longest * hs;
	struct gathered g = {.h = dynmo_head(a->offsets, c, a->nh, a->nh, i)};
	g.by = dynmo_sorted(a->order, a->starts, a->buckets, g.h, i);
	g.p = a->work + dynmo_team_member() * room(a->longest, hs);
	g.dp = g.p + TILE * a->longest;
	g.q = g.p + dynmo_lines(2 * TILE * a->longest);
	g.k = g.q + size;
	g.v = g.k + size;
	g.dk = g.v + size;
	g.dv = g.dk + size;
	g.rows = g.q + dynmo_lines(5 * size);
	g.dy = g.rows + TILE * hs;
	g.seen = (int32_t *)(g.rows + dynmo_lines(2 * TILE * hs));
	const float *qkv = a->qkv + g.h.in;
	gather(g.q, qkv, g.by.queries, g.h.t, 3 * c, hs);
	gather(g.k, qkv + c, g.by.keys, g.h.t, 3 * c, hs);
	gather(g.v, qkv + 2 * c, g.by.keys, g.h.t, 3 * c, hs);
	dynmo_seen(g.seen, g.by, a->buckets);
	return g;
}

/* Calls do_tile for each tile of a head, bucket by bucket, in ascending order of queries. */
static void each_tile(const struct sparse *a, const struct gathered *g, void (*do_tile)(const struct sparse *,
	const struct gathered *, struct tile))
{
	for (int64_t b = 0; b < a->buckets; b++) {
		int64_t end = g->by.query_start[b + 1];
		for (int64_t first = g->by.query_start[b]; first < end; first += TILE) {
			int64_t rows = dynmo_min(TILE, end - first);
			do_tile(a, g, (struct tile){first, rows, g->by.key_start[b], g->seen[first + rows - 1]});
		}
	}
}

/* Sets the scores of a row that its query does not see to 0. */
static void clear_unseen(float *s, int64_t seen, int64_t keys) { memset(s + seen, 0, (size_t)(keys - seen) * sizeof *s); }

/* Sets out and lse for the queries of a tile. A query that sees no key gets the output 0. */
static void forward_tile(const struct sparse *a, const struct gathered *g, struct tile t)
{
	int64_t c = a->c, hs = c / a->nh;
	const int32_t *at = g->by.queries + t.query, *seen = g->seen + t.query;
	float *lse = a->lse + g->h.sums, inverse[TILE];
	if (t.keys > 0)
		dynmo_sgemm(0, 1, t.rows, t.keys, hs, 1 / sqrtf((float)hs), g->q + t.query * hs, hs, g->k + t.key * hs, hs, 0, g->p, t.keys);
	for (int64_t i = 0; i < t.rows; i++) {
		float *row = g->p + i * t.keys;
		inverse[i] = 0;
		lse[at[i]] = -INFINITY;
		if (seen[i] > 0) {
			float max = a->k->row_max(row, seen[i]);
			double sum = a->k->exp_sum(row, max, seen[i]);
			inverse[i] = (float)(1 / sum);
			lse[at[i]] = (float)(max + log(sum));
		}
		clear_unseen(row, seen[i], t.keys);
	}
	if (t.keys > 0)
		dynmo_sgemm(0, 0, t.rows, hs, t.keys, 1, g->p, t.keys, g->v + t.key * hs, hs, 0, g->rows, hs);
	else
		memset(g->rows, 0, (size_t)(t.rows * hs) * sizeof *g->rows);
	for (int64_t i = 0; i < t.rows; i++)
		a->k->scale_row(g->rows + i * hs, inverse[i], hs);
	scatter(a->out + g->h.at, g->rows, at, t.rows, c, hs);
}

/* Sets dq for the queries of a tile, and adds to dk and dv of its keys. */
static void backward_tile(const struct sparse *a, const struct gathered *g, struct tile t)
{
	int64_t c = a->c, hs = c / a->nh;
	float scale = 1 / sqrtf((float)hs);
	const int32_t *at = g->by.queries + t.query, *seen = g->seen + t.query;
	const float *q = g->q + t.query * hs, *k = g->k + t.key * hs, *v = g->v + t.key * hs;
	if (t.keys == 0) {
		memset(g->rows, 0, (size_t)(t.rows * hs) * sizeof *g->rows);
		scatter(a->dqkv + g->h.in, g->rows, at, t.rows, 3 * c, hs);
		return;
	}
	gather(g->dy, a->dout + g->h.at, at, t.rows, c, hs);
	dynmo_sgemm(0, 1, t.rows, t.keys, hs, scale, q, hs, k, hs, 0, g->p, t.keys);
	dynmo_sgemm(0, 1, t.rows, t.keys, hs, 1, g->dy, hs, v, hs, 0, g->dp, t.keys);
	for (int64_t i = 0; i < t.rows; i++) {
		float *p = g->p + i * t.keys, *dp = g->dp + i * t.keys;
		if (seen[i] > 0) {
			a->k->exp_row(p, a->lse[g->h.sums + at[i]], seen[i]);
			float delta = a->k->dot(g->dy + i * hs, a->out + g->h.at + at[i] * c, hs);
			a->k->softmax_backward_row(dp, p, delta, seen[i]);
		}
		clear_unseen(p, seen[i], t.keys);
		clear_unseen(dp, seen[i], t.keys);
	}
	dynmo_sgemm(1, 0, t.keys, hs, t.rows, 1, g->p, t.keys, g->dy, hs, 1, g->dv + t.key * hs, hs);
	dynmo_sgemm(0, 0, t.rows, hs, t.keys, scale, g->dp, t.keys, k, hs, 0, g->rows, hs);
	dynmo_sgemm(1, 0, t.keys, hs, t.rows, scale, g->dp, t.keys, q, hs, 1, g->dk + t.key * hs, hs);
	scatter(a->dqkv + g->h.in, g->rows, at, t.rows, 3 * c, hs);
}

/* Items are heads of sequences. */
static void forward(const void *job, int64_t first, int64_t last)
{
	for (int64_t i = first; i < last; i++) {
		struct gathered g = gather_head(job, i);
		each_tile(job, &g, forward_tile);
	}
}

/* Items are heads of sequences. The sums of dk and dv take the tiles in ascending order. */
static void backward(const void *job, int64_t first, int64_t last)
{
	const struct sparse *a = job;
	int64_t c = a->c, hs = c / a->nh;
	for (int64_t i = first; i < last; i++) {
		struct gathered g = gather_head(a, i);
		memset(g.dk, 0, (size_t)(g.h.t * hs) * sizeof *g.dk);
		memset(g.dv, 0, (size_t)(g.h.t * hs) * sizeof *g.dv);
		each_tile(a, &g, backward_tile);
		scatter(a->dqkv + g.h.in + c, g.dk, g.by.keys, g.h.t, 3 * c, hs);
		scatter(a->dqkv + g.h.in + 2 * c, g.dv, g.by.keys, g.h.t, 3 * c, hs);
	}
}

int32_t dynmo_cpu_sparse_attention_forward(const dynmo_cpu *k, float *work, float *out, float *lse, const float *qkv,
	const int32_t *offsets, const int32_t *order, const int32_t *starts, int64_t buckets, int64_t b, int64_t longest,
	int64_t n, int64_t c, int64_t nh)
{
	if (!dynmo_sequences(offsets, b, longest, n) || !inside(order, starts, buckets, offsets, b, nh))
		return DYNMO_CPU_INDEX;
	dynmo_parallel(k->team, b * nh, 1, forward, &(struct sparse){.k = k, .work = dynmo_align(work), .out = out, .lse = lse,
		.qkv = qkv, .offsets = offsets, .order = order, .starts = starts, .buckets = buckets, .longest = longest, .c = c,
		.nh = nh});
	return DYNMO_CPU_OK;
}

int32_t dynmo_cpu_sparse_attention_backward(const dynmo_cpu *k, float *work, float *dqkv, const float *dout,
	const float *qkv, const float *out, const float *lse, const int32_t *offsets, const int32_t *order,
	const int32_t *starts, int64_t buckets, int64_t b, int64_t longest, int64_t n, int64_t c, int64_t nh)
{
	if (!dynmo_sequences(offsets, b, longest, n) || !inside(order, starts, buckets, offsets, b, nh))
		return DYNMO_CPU_INDEX;
	dynmo_parallel(k->team, b * nh, 1, backward, &(struct sparse){.k = k, .work = dynmo_align(work), .out = (float *)out,
		.lse = (float *)lse, .dqkv = dqkv, .qkv = qkv, .dout = dout, .offsets = offsets, .order = order, .starts = starts,
		.buckets = buckets, .longest = longest, .c = c, .nh = nh});
	return DYNMO_CPU_OK;
}
