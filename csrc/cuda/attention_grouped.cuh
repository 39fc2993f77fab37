/* Attention of heads that share keys and values, as attention of heads that have a copy
 * each: the copies are made before, and their gradients added up after. What moves is
 * little next to the scores, and the kernels of attention know nothing of it. */
#ifndef DYNMO_ATTENTION_GROUPED_CUH
#define DYNMO_ATTENTION_GROUPED_CUH

#include "device.cuh"

/* Of a row of c queries and keys and values of `keys` channels each, in heads of hs:
 * `share` heads have the same ones. */
struct attention_group {
	int c, keys, hs, share;
};

inline attention_group attention_group_of(int c, int nh, int kv) { return {c, kv * (c / nh), c / nh, nh / kv}; }

/* Sets to (n, 3c) to qkv (n, c + 2·keys), with a copy of keys and values for each head. */
template <typename E> int32_t attention_spread(void *stream, E *to, const E *qkv, size_t n, attention_group g);

/* Sets dqkv (n, c + 2·keys) to from (n, 3c), with the gradients of copies added up, head
 * by head. */
template <typename E> int32_t attention_collect(void *stream, E *dqkv, const E *from, size_t n, attention_group g);

#endif
