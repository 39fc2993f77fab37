/* Sums over the rows of a matrix (n, c), one for each column, added to float
 * destinations: the gradients of biases and of LayerNorm's weights.
 *
 * Two stages through the workspace. A block of threads sums a tile of 32 packs
 * of columns over a block of rows: each warp takes every eighth row, a lane one
 * pack of it, and the warps' sums are added in order. Then the sums of the row
 * blocks are added in order. n·c elements are read once; the partial sums are
 * 1/32 of that for one sum of bf16, and stay in the L2 cache. */
#ifndef DYNMO_COLUMNS_CUH
#define DYNMO_COLUMNS_CUH

#include "pack.cuh"

const int COLUMN_WARPS = 8;

/* Where SUMS sums of each column go, and where they are until then. */
template <int SUMS> struct column_places {
	float *out[SUMS];
	float *partial; /* (SUMS, row blocks, c) */
};

/* column_rows is the number of rows of a row block: of them there are at most
 * 128, and each has rows for every warp. */
inline int column_rows(int n)
{
	int rows = static_cast<int>(parts(parts(n, 128), COLUMN_WARPS)) * COLUMN_WARPS;
	return rows < 64 ? 64 : rows;
}

/* column_sums_bytes is the workspace of sums for each of c columns over n rows. */
inline size_t column_sums_bytes(int n, int c, int sums = 1)
{
	return sizeof(float) * sums * parts(n, column_rows(n)) * c;
}

/* term.add(sum, row, at, c) adds the terms of columns [at, at + N) of a row to
 * sum[SUMS][N]. A pack has N elements E. Columns from c on add nothing. */
template <typename E, int SUMS, typename TERM>
__global__ void __launch_bounds__(32 * COLUMN_WARPS)
column_blocks(column_places<SUMS> place, TERM term, int n, int c, int rows)
{
	const int N = width<E>;
	using packed = pack<float, N>;
	SHARED(packed, tile, [COLUMN_WARPS][32]);
	int lane = threadIdx.x, warp = threadIdx.y, left = blockIdx.x * 32 * N, at = left + lane * N;
	int first = blockIdx.y * rows, last = min(n, first + rows);
	float sum[SUMS][N] = {};
	if (at < c) {
#pragma unroll 4
		for (int row = first + warp; row < last; row += COLUMN_WARPS)
			term.add(sum, row, at, c);
	}
#pragma unroll
	for (int s = 0; s < SUMS; s++) {
		tile[warp][lane] = packed::of(sum[s]);
		__syncthreads();
		for (int j = 32 * warp + lane; j < 32 * N && left + j < c; j += 32 * COLUMN_WARPS) {
			float total = 0;
			for (int w = 0; w < COLUMN_WARPS; w++)
				total += tile[w][j / N][j % N];
			place.partial[(static_cast<int64_t>(s) * gridDim.y + blockIdx.y) * c + left + j] = total;
		}
		__syncthreads();
	}
}

/* Adds the sums of row blocks: each warp those of a run of them, then the warps'
 * sums are added in order. */
template <int SUMS>
__global__ void __launch_bounds__(32 * COLUMN_WARPS) column_totals(column_places<SUMS> place, int blocks, int c)
{
	SHARED(float, tile, [COLUMN_WARPS][32]);
	int lane = threadIdx.x, warp = threadIdx.y, column = blockIdx.x * 32 + lane, s = blockIdx.y;
	int run = (blocks + COLUMN_WARPS - 1) / COLUMN_WARPS, last = min(blocks, (warp + 1) * run);
	const float *partial = place.partial + static_cast<int64_t>(s) * blocks * c + column;
	float sum = 0;
	if (column < c) {
#pragma unroll 8
		for (int b = warp * run; b < last; b++)
			sum += partial[static_cast<int64_t>(b) * c];
	}
	tile[warp][lane] = sum;
	__syncthreads();
	if (warp == 0 && column < c) {
		for (int w = 1; w < COLUMN_WARPS; w++)
			sum += tile[w][lane];
		float *out = s == 0 ? place.out[0] : place.out[SUMS - 1];
		out[column] += sum;
	}
}

/* add_columns runs both stages for any term, on at most two sums. */
template <typename E, int SUMS, typename TERM>
int32_t add_columns(void *stream, const column_places<SUMS> &place, const TERM &term, int n, int c)
{
	static_assert(SUMS <= 2, "column_totals tells two destinations apart");
	if (n == 0 || c == 0) return 0;
	int rows = column_rows(n), blocks = static_cast<int>(parts(n, rows));
	dim3 threads(32, COLUMN_WARPS);
	LAUNCH((column_blocks<E, SUMS, TERM>), dim3(parts(c, 32 * width<E>), blocks), threads, 0, stream, place, term, n, c,
		rows);
	LAUNCH(column_totals<SUMS>, dim3(parts(c, 32), SUMS), threads, 0, stream, place, blocks, c);
	return launched();
}

/* column_sums adds Σ_n x[n][o] to sums (o); x is (n, o). It uses
 * column_sums_bytes(n, o) of the workspace from offset on, a multiple of 16. A
 * caller with something of its own below offset asks for the whole first. */
template <typename E>
int32_t column_sums(dynmo_cuda *k, void *stream, float *sums, const E *x, int32_t n, int32_t o, size_t offset = 0);

#endif
