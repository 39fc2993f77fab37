/* Grouped products by plain_tile.cuh's tiles, 2·n·c·o operations in float. */
#include "grouped.cuh"
#include "plain_tile.cuh"

namespace {

/* Grid (tiles of rows, of columns) of FORWARD and INPUT, in which `inner` elements are
 * summed and rows of d have `outer`. */
template <typename E, bool FORWARD>
__global__ void __launch_bounds__(PLAIN_THREADS) multiply(grouped g, int inner, int outer) {
	SHARED(plain_tiles, tiles, );
	grouped_rows of = grouped_tile(g, blockIdx.x, PLAIN_TILE);
	if (of.expert == g.experts) return;
	const E *w = static_cast<const E *>(g.y) + of.expert * g.stride;
	plain_operand<E> weight = {w, FORWARD ? inner : 1, FORWARD ? 1 : outer, outer, inner};
	plain_operand<E> x = {static_cast<const E *>(g.x), inner, 1, of.hi, inner};
	int column = blockIdx.y * PLAIN_TILE;
	float sum[PLAIN_SIDE][PLAIN_SIDE] = {};
	plain_multiply(sum, tiles, weight, x, column, of.lo);
#pragma unroll
	for (int r = 0; r < PLAIN_SIDE; r++)
#pragma unroll
		for (int c = 0; c < PLAIN_SIDE; c++) {
			int i = column + plain_row(r), row = of.lo + plain_column(c);
			if (i < outer && row < of.hi) static_cast<E *>(g.d)[static_cast<int64_t>(row) * outer + i] = narrow<E>(sum[r][c]);
		}
}

/* Grid (tiles of c, of o, experts). */
template <typename E> __global__ void __launch_bounds__(PLAIN_THREADS) add_weights(grouped g) {
	SHARED(plain_tiles, tiles, );
	int lo = g.ends[blockIdx.z], rows = g.ends[blockIdx.z + 1] - lo;
	if (rows == 0) return;
	plain_operand<E> x = {static_cast<const E *>(g.x) + static_cast<int64_t>(lo) * g.o, 1, g.o, g.o, rows};
	plain_operand<E> y = {static_cast<const E *>(g.y) + static_cast<int64_t>(lo) * g.c, 1, g.c, g.c, rows};
	int column = blockIdx.x * PLAIN_TILE, row = blockIdx.y * PLAIN_TILE;
	float sum[PLAIN_SIDE][PLAIN_SIDE] = {};
	plain_multiply(sum, tiles, y, x, column, row);
	float *d = static_cast<float *>(g.d) + blockIdx.z * g.stride;
#pragma unroll
	for (int r = 0; r < PLAIN_SIDE; r++)
#pragma unroll
		for (int c = 0; c < PLAIN_SIDE; c++) {
			int i = column + plain_row(r), j = row + plain_column(c);
			if (i < g.c && j < g.o) d[static_cast<int64_t>(j) * g.c + i] += sum[r][c];
		}
}

unsigned tiles_of(int length) { return (length + PLAIN_TILE - 1) / PLAIN_TILE; }

} // namespace

template <typename E> int32_t grouped_plain(void *stream, grouped_kind kind, const grouped &g) {
	unsigned rows = grouped_tiles(g, PLAIN_TILE);
	switch (kind) {
	case GROUPED_FORWARD: LAUNCH((multiply<E, true>), dim3(rows, tiles_of(g.o)), PLAIN_THREADS, 0, stream, g, g.c, g.o); break;
	case GROUPED_INPUT: LAUNCH((multiply<E, false>), dim3(rows, tiles_of(g.c)), PLAIN_THREADS, 0, stream, g, g.o, g.c); break;
	case GROUPED_WEIGHT: LAUNCH(add_weights<E>, dim3(tiles_of(g.c), tiles_of(g.o), g.experts), PLAIN_THREADS, 0, stream, g); break;
	}
	return launched();
}

template int32_t grouped_plain<float>(void *, grouped_kind, const grouped &);
template int32_t grouped_plain<bf16>(void *, grouped_kind, const grouped &);
