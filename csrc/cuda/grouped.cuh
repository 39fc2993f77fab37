/* Products of the rows of several experts, each with its own matrix, in one launch. Device
 * memory says which rows an expert has, so the host need not know. */
#ifndef DYNMO_GROUPED_CUH
#define DYNMO_GROUPED_CUH

#include "device.cuh"

/* d (n, o) = x (n, c) · weightᵀ; d (n, c) = x (n, o) · weight; d, the matrices (o, c), float,
 * += xᵀ (o, n) · y (n, c). */
enum grouped_kind { GROUPED_FORWARD, GROUPED_INPUT, GROUPED_WEIGHT };

/* y is the matrices, except in GROUPED_WEIGHT. Matrix e begins at element e·stride. */
struct grouped {
	void *d;
	const void *x, *y;
	const int32_t *ends; /* expert e has rows [ends[e], ends[e + 1]) */
	int n, c, o, experts;
	int64_t stride;
};

/* The rows of an expert. */
struct grouped_rows {
	int expert, lo, hi;
};

/* Returns the expert of tile number `block`, and the expert's rows from the tile on. A tile has
 * `tile` rows, and the rows of each expert begin a new tile. expert is g.experts if there are
 * fewer tiles. The search is linear, because experts are few. */
__device__ __forceinline__ grouped_rows grouped_tile(const grouped &g, int block, int tile) {
	for (int e = 0; e < g.experts; e++) {
		int lo = g.ends[e], hi = g.ends[e + 1], tiles = (hi - lo + tile - 1) / tile;
		if (block < tiles) return {e, lo + block * tile, hi};
		block -= tiles;
	}
	return {g.experts, 0, 0};
}

/* The most tiles that n rows of all experts take. */
inline unsigned grouped_tiles(const grouped &g, int tile) { return g.n / tile + (g.experts < g.n ? g.experts : g.n); }

/* Any type, shape and alignment, without tensor cores. */
template <typename E> int32_t grouped_plain(void *stream, grouped_kind kind, const grouped &g);

#endif
