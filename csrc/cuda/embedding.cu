/* Tokens and positions, which index their tables.
 *
 * Forward moves 3·n·c elements, backward reads dout twice and adds to each row
 * of the float tables once. Tokens, and positions, are sorted first, equal ones in
 * ascending order of place, by counting for each how many come before it: n²
 * comparisons, at n = 16384 some tens of microseconds of integer work. Then one
 * warp adds up all rows of an index, for a tile of 32 packs of columns, in that
 * order; rows are loaded several at a time. */
#include "pack.cuh"

namespace {

const int WARPS = 8; /* of a block, each with a row of its own */

/* The row of a warp, and the first column of a lane in its tile. */
__device__ __forceinline__ int warp_row() { return blockIdx.x * WARPS + threadIdx.y; }

template <typename E> __device__ __forceinline__ int tile_column()
{
	return (blockIdx.y * 32 + threadIdx.x) * width<E>;
}

/* A grid of warps over rows and tiles of c columns. */
template <typename E> dim3 row_tiles(int rows, int c) { return dim3(parts(rows, WARPS), parts(c, 32 * width<E>)); }

template <typename E, bool VECTOR>
__global__ void __launch_bounds__(32 * WARPS)
forward(E *out, const int32_t *tokens, const int32_t *positions, const E *wte, const E *wpe, int n, int c)
{
	const int N = width<E>;
	int i = warp_row(), at = tile_column<E>();
	if (i >= n || at >= c) return;
	pack<E> token = read<VECTOR, N>(wte + static_cast<int64_t>(tokens[i]) * c, at, c);
	pack<E> position = read<VECTOR, N>(wpe + static_cast<int64_t>(positions[i]) * c, at, c);
	float sum[N];
#pragma unroll
	for (int j = 0; j < N; j++)
		sum[j] = token[j] + position[j];
	write<VECTOR>(out + static_cast<int64_t>(i) * c, at, c, pack<E>::of(sum));
}

/* Adds to a row of a float table the rows of dout at the first `many` places of order. */
template <bool VECTOR, typename E>
__device__ __forceinline__ void add_rows(float *row, const E *dout, const int32_t *order, int many, int at, int c)
{
	const int N = width<E>;
	pack<float, N> sum = read<VECTOR, N>(row, at, c);
#pragma unroll 8
	for (int i = 0; i < many; i++) {
		pack<E> x = read<VECTOR, N>(dout + static_cast<int64_t>(order[i]) * c, at, c);
#pragma unroll
		for (int j = 0; j < N; j++)
			sum.words[j] += x[j];
	}
	write<VECTOR>(row, at, c, sum);
}

/* A table's gradient, its rows' indices (n), and room for their order. */
struct table_gradient {
	float *rows;
	const int32_t *index;
	int32_t *order;
};

/* order[r] is the r-th index's place, by value and then by place. Grid: y is the table. */
__global__ void __launch_bounds__(32 * WARPS) sort_indices(table_gradient wte, table_gradient wpe, int n)
{
	table_gradient table = blockIdx.y == 0 ? wte : wpe;
	int i = warp_row(), lane = threadIdx.x, before = 0, mine = i < n ? table.index[i] : 0;
	if (i < n) {
#pragma unroll 8
		for (int j = lane; j < n; j += 32)
			before += table.index[j] < mine + (j < i);
	}
#pragma unroll
	for (int apart = 16; apart > 0; apart /= 2)
		before += __shfl_xor_sync(0xffffffff, before, apart);
	if (lane == 0 && i < n) table.order[before] = i;
}

/* A warp whose place in the order is the first of its index adds all its rows. Grid:
 * z is the table. */
template <typename E, bool VECTOR>
__global__ void __launch_bounds__(32 * WARPS)
add_to_tables(table_gradient wte, table_gradient wpe, const E *dout, int n, int c)
{
	table_gradient table = blockIdx.z == 0 ? wte : wpe;
	const int32_t *index = table.index, *order = table.order;
	int first = warp_row(), at = tile_column<E>();
	if (first >= n) return;
	int row = index[order[first]], many = 0;
	if (first > 0 && index[order[first - 1]] == row) return;
	for (unsigned same = 0xffffffff; same == 0xffffffff; many += __popc(same)) {
		int place = first + many + threadIdx.x;
		same = __ballot_sync(0xffffffff, place < n && index[order[place < n ? place : first]] == row);
	}
	if (at < c) add_rows<VECTOR>(table.rows + static_cast<int64_t>(row) * c, dout, order + first, many, at, c);
}

template <typename E>
int32_t run_forward(void *stream, void *out, const int32_t *tokens, const int32_t *positions, const void *wte,
	const void *wpe, int n, int c)
{
	auto kernel = rows_aligned<E>(c, out, wte, wpe) ? forward<E, true> : forward<E, false>;
	LAUNCH(kernel, row_tiles<E>(n, c), dim3(32, WARPS), 0, stream, static_cast<E *>(out), tokens, positions,
		static_cast<const E *>(wte), static_cast<const E *>(wpe), n, c);
	return launched();
}

template <typename E>
int32_t run_backward(dynmo_cuda *k, void *stream, float *dwte, float *dwpe, const void *dout, const int32_t *tokens,
	const int32_t *positions, int n, int c)
{
	void *work;
	if (int32_t status = workspace(k, 2 * n * sizeof(int32_t), &work)) return status;
	int32_t *order = static_cast<int32_t *>(work);
	table_gradient wte = {dwte, tokens, order}, wpe = {dwpe, positions, order + n};
	auto add = rows_aligned<E>(c, dwte, dwpe, dout) ? add_to_tables<E, true> : add_to_tables<E, false>;
	dim3 threads(32, WARPS), tiles = row_tiles<E>(n, c);
	unsigned tables = dwpe ? 2 : 1;
	LAUNCH(sort_indices, dim3(tiles.x, tables), threads, 0, stream, wte, wpe, n);
	LAUNCH(add, dim3(tiles.x, tiles.y, tables), threads, 0, stream, wte, wpe, static_cast<const E *>(dout), n, c);
	return launched();
}

} // namespace

int32_t dynmo_cuda_embedding_forward(dynmo_cuda *k, void *stream, void *out, const int32_t *tokens,
	const int32_t *positions, const void *wte, const void *wpe, int32_t n, int32_t c)
{
	if (n == 0 || c == 0) return 0;
	return BY_TYPE(k, run_forward, stream, out, tokens, positions, wte, wpe, n, c);
}

int32_t dynmo_cuda_embedding_backward(dynmo_cuda *k, void *stream, float *dwte, float *dwpe, const void *dout,
	const int32_t *tokens, const int32_t *positions, int32_t n, int32_t c)
{
	if (n == 0 || c == 0) return 0;
	return BY_TYPE(k, run_backward, k, stream, dwte, dwpe, dout, tokens, positions, n, c);
}
