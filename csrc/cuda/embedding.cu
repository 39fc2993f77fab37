/* Tokens and positions, which index their tables.
 *
 * Forward moves 3·n·c elements. Backward reads dout twice, and reads and writes each used
 * row of the float tables once. It sorts the indices first, equal ones in ascending order
 * of place: a block sorts a run of 2048, then runs are merged in pairs. A warp adds all
 * rows of an index in that order, for a tile of 128 columns. */
#include "pack.cuh"

#include <utility>

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

/* A key has an index in its upper half and the place of the index in its lower one. Keys
 * differ, and their order is that of the sums. */
using key = unsigned long long;

__device__ __forceinline__ int row_of(key k) { return static_cast<int>(k >> 32); }
__device__ __forceinline__ int place_of(key k) { return static_cast<int>(k); }

constexpr key NO_KEY = ~0ull; /* above all others */
const int RUN = 2048;         /* keys that a block sorts */
const int SORTERS = 512;      /* threads of the block */

/* Sorts runs of a table's keys by a bitonic network (Batcher 1968). keys are (2, n). Grid: y
 * is the table. */
__global__ void __launch_bounds__(SORTERS)
sort_runs(key *keys, const int32_t *tokens, const int32_t *positions, int n)
{
	SHARED(key, run, [RUN]);
	const int32_t *index = blockIdx.y == 0 ? tokens : positions;
	keys += static_cast<size_t>(blockIdx.y) * n;
	int first = blockIdx.x * RUN;
	for (int i = threadIdx.x; i < RUN; i += SORTERS) {
		int place = first + i;
		run[i] = place < n ? static_cast<key>(index[place]) << 32 | static_cast<key>(place) : NO_KEY;
	}
	for (int size = 2; size <= RUN; size *= 2)
		for (int apart = size / 2; apart > 0; apart /= 2) {
			__syncthreads();
			for (int pair = threadIdx.x; pair < RUN / 2; pair += SORTERS) {
				int i = 2 * pair - (pair & (apart - 1)), j = i + apart;
				key a = run[i], b = run[j];
				if ((a > b) == ((i & size) == 0)) {
					run[i] = b;
					run[j] = a;
				}
			}
		}
	__syncthreads();
	for (int i = threadIdx.x; i < RUN && first + i < n; i += SORTERS)
		keys[first + i] = run[i];
}

/* Merges sorted runs of `length` keys, each with the one beside it. Grid: y is the table. */
__global__ void merge_runs(key *to, const key *from, int n, int length)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n) return;
	to += static_cast<size_t>(blockIdx.y) * n;
	from += static_cast<size_t>(blockIdx.y) * n;
	int other = min(n, (i / length ^ 1) * length), low = other, high = min(n, other + length);
	key mine = from[i];
	while (low < high) {
		int middle = (low + high) / 2;
		if (from[middle] < mine)
			low = middle + 1;
		else
			high = middle;
	}
	to[i / length / 2 * 2 * length + i % length + (low - other)] = mine;
}

const int COLUMNS = 4;         /* of a lane */
const int TILE = 32 * COLUMNS; /* columns of a warp */

/* Rows that a warp reads before it adds them. With 32 warps a multiprocessor, registers hold no more. */
template <typename E> constexpr int AT_ONCE = 32 / sizeof(E);

/* Adds to the sum the rows of dout at the places that lanes [first, end) have, AT_ONCE of them at
 * most. All rows are read before the first is added. */
template <bool VECTOR, typename E>
__device__ __forceinline__ void
add_rows(pack<float, COLUMNS> &sum, const E *dout, int place, int first, int end, int at, int c)
{
	pack<E, COLUMNS> x[AT_ONCE<E>];
#pragma unroll
	for (int i = 0; i < AT_ONCE<E>; i++) {
		if (first + i >= end) break;
		int from = __shfl_sync(0xffffffff, place, first + i);
		x[i] = read<VECTOR, COLUMNS>(dout + static_cast<int64_t>(from) * c, at, c);
	}
#pragma unroll
	for (int i = 0; i < AT_ONCE<E>; i++) {
		if (first + i >= end) break;
#pragma unroll
		for (int j = 0; j < COLUMNS; j++)
			sum.words[j] += x[i][j];
	}
}

/* Adds to a row of a float table all rows of dout of its index, whose keys begin at keys[first]. */
template <bool VECTOR, typename E>
__device__ __forceinline__ void
add_to_row(float *table, const key *keys, const E *dout, int first, int at, int n, int c)
{
	int row = row_of(keys[first]), many;
	float *to = table + static_cast<int64_t>(row) * c;
	pack<float, COLUMNS> sum = read<VECTOR, COLUMNS>(to, at, c);
	do {
		int i = first + threadIdx.x;
		key mine = i < n ? keys[i] : NO_KEY;
		many = __popc(__ballot_sync(0xffffffff, row_of(mine) == row));
#pragma unroll 1
		for (int done = 0; done < many; done += AT_ONCE<E>)
			add_rows<VECTOR>(sum, dout, place_of(mine), done, many, at, c);
		first += 32;
	} while (many == 32);
	write<VECTOR>(to, at, c, sum);
}

/* A block owns the rows whose first keys are among WARPS keys. Its warps take the tiles of
 * these rows in turn. Grid: y is the table. */
template <typename E, bool VECTOR>
__global__ void __launch_bounds__(32 * WARPS, 4)
add_to_tables(float *dwte, float *dwpe, const key *keys, const E *dout, int n, int c)
{
	float *table = blockIdx.y == 0 ? dwte : dwpe;
	keys += static_cast<size_t>(blockIdx.y) * n;
	int lane = threadIdx.x, first = blockIdx.x * WARPS, i = first + lane;
	int tiles = (c + TILE - 1) / TILE, tile = threadIdx.y;
	bool mine = lane < WARPS && i < n;
	unsigned begins = __ballot_sync(0xffffffff, mine && (i == 0 || row_of(keys[i]) != row_of(keys[i - 1])));
	for (; begins != 0; begins &= begins - 1) {
		for (; tile < tiles; tile += WARPS)
			add_to_row<VECTOR>(table, keys, dout, first + __ffs(begins) - 1, tile * TILE + lane * COLUMNS, n, c);
		tile -= tiles;
	}
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
	unsigned tables = dwpe ? 2 : 1;
	size_t all = static_cast<size_t>(tables) * n;
	void *work;
	if (int32_t status = workspace(k, 2 * all * sizeof(key), &work)) return status;
	key *keys = static_cast<key *>(work), *merged = keys + all;
	LAUNCH(sort_runs, dim3(parts(n, RUN), tables), SORTERS, 0, stream, keys, tokens, positions, n);
	for (int length = RUN; length < n; length *= 2) {
		LAUNCH(merge_runs, dim3(parts(n, 256), tables), 256, 0, stream, merged, keys, n, length);
		std::swap(keys, merged);
	}
	auto add = rows_aligned<E>(c, dwte, dwpe, dout) ? add_to_tables<E, true> : add_to_tables<E, false>;
	LAUNCH(add, dim3(parts(n, WARPS), tables), dim3(32, WARPS), 0, stream, dwte, dwpe, keys,
		static_cast<const E *>(dout), n, c);
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
