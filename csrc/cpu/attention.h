/* Declarations that the attention files share. */
#ifndef DYNMO_ATTENTION_H
#define DYNMO_ATTENTION_H

#include "kernels.h"

/* Query rows of a tile: at 64 the products are large enough for the BLAS and
 * the part above the diagonal that is computed in vain is half a tile. */
enum { TILE = 64 };

/* Floats of a token's queries, keys and values: nh query heads (c channels), kv heads of keys and of values. */
static inline int64_t dynmo_width(int64_t c, int64_t nh, int64_t kv) { return c + 2 * kv * (c / nh); }

/* A head of a sequence: its rows and where they begin, in floats: queries, keys and
 * values in qkv and dqkv (token of dynmo_width), rows in out and dout (token of c), and
 * sums in lse. */
struct head {
	int64_t t, in, key, value, at, sums;
};

/* Head i of all sequences. */
static inline struct head dynmo_head(const int32_t *offsets, int64_t c, int64_t nh, int64_t kv, int64_t i)
{
	int64_t first = offsets[i / nh], t = offsets[i / nh + 1] - first, number = i % nh, hs = c / nh;
	int64_t row = first * dynmo_width(c, nh, kv), key = row + c + number / (nh / kv) * hs;
	return (struct head){t, row + number * hs, key, key + kv * hs, first * c + number * hs, first * nh + number * t};
}

/* Says whether the offsets ascend from 0 to n, by at most longest. */
static inline int dynmo_sequences(const int32_t *offsets, int64_t b, int64_t longest, int64_t n)
{
	for (int64_t i = 0; i < b; i++)
		if (offsets[i + 1] < offsets[i] || offsets[i + 1] - offsets[i] > longest)
			return 0;
	return offsets[0] == 0 && offsets[b] == n;
}

/* A head's tokens by bucket: positions in the sequence, and where each bucket begins. */
struct sorted {
	const int32_t *queries, *keys, *query_start, *key_start;
};

/* Head i of all sequences, which is h. */
static inline struct sorted dynmo_sorted(const int32_t *order, const int32_t *starts, int64_t buckets, struct head h, int64_t i)
{
	const int32_t *queries = order + 2 * h.sums, *query_start = starts + i * 2 * (buckets + 1);
	return (struct sorted){queries, queries + h.t, query_start, query_start + buckets + 1};
}

/* Sets how many keys each query sees, in the order of the queries: the first ones of its
 * bucket, those that are not behind it. */
static inline void dynmo_seen(int32_t *seen, struct sorted s, int64_t buckets)
{
	for (int64_t b = 0; b < buckets; b++) {
		int32_t key = s.key_start[b];
		for (int32_t i = s.query_start[b]; i < s.query_start[b + 1]; i++) {
			while (key < s.key_start[b + 1] && s.keys[key] <= s.queries[i])
				key++;
			seen[i] = key - s.key_start[b];
		}
	}
}

#endif
