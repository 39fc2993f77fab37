/* Products with blocks in float: 2·n operations for a kept value. A block of 128 threads
 * makes a tile, 8x4 results a thread. It goes through the summed dimension 32 at a time, and
 * the tiles of both operands then lie in shared memory. */
#include "blocks.cuh"

namespace {

enum { TILE = BLOCK_TILE, SIDE = BLOCK_SIDE, THREADS = 128, PAD = 4 /* keeps four side by side aligned */ };
enum { LONG = 8, SHORT = 4 }; /* results of a thread along the tile's sides */

/* A step's operands, by the summed dimension. */
struct tiles {
	float of_tile[SIDE][TILE + PAD], of_side[SIDE][SIDE + PAD];
};

typedef float results[LONG][SHORT];

/* A thread's results: fours 64 apart of the tile, one four of its side. */
__device__ __forceinline__ int tile_place(int i) { return threadIdx.x % 16 * 4 + i / 4 * 64 + i % 4; }
__device__ __forceinline__ int side_place(int j) { return threadIdx.x / 16 * 4 + j; }

/* Adds a step's product, between two barriers. */
__device__ __forceinline__ void add_step(results &sum, const tiles &t)
{
	__syncthreads();
#pragma unroll 4
	for (int d = 0; d < SIDE; d++) {
		float a[LONG], b[SHORT];
#pragma unroll
		for (int i = 0; i < LONG; i++)
			a[i] = t.of_tile[d][tile_place(i)];
#pragma unroll
		for (int j = 0; j < SHORT; j++)
			b[j] = t.of_side[d][side_place(j)];
#pragma unroll
		for (int i = 0; i < LONG; i++)
#pragma unroll
			for (int j = 0; j < SHORT; j++)
				sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
	}
	__syncthreads();
}

/* Grid (blocks of outputs, tiles of tokens). */
template <typename E, bool FORWARD> __global__ void __launch_bounds__(THREADS) multiply(block_product p)
{
	SHARED(tiles, t, );
	int inputs = FORWARD ? p.w.cols : p.w.rows, outputs = FORWARD ? p.w.rows : p.w.cols, token = blockIdx.y * TILE;
	block_walk<FORWARD> blocks(p, blockIdx.x);
	results sum = {};
	for (int step = 0; step < blocks.kept; step++) {
		block_kept b = blocks[step];
		const E *x = static_cast<const E *>(p.x) + b.place * SIDE, *w = static_cast<const E *>(p.y) + b.value;
#pragma unroll 8
		for (int e = threadIdx.x; e < TILE * SIDE; e += THREADS) { /* 8 channels of 4 tokens a warp: their banks differ */
			int d = e % 8 + e / 32 % 4 * 8, i = e / 8 % 4 + e / 128 * 4;
			t.of_tile[d][i] = token + i < p.n ? wide(x[static_cast<int64_t>(token + i) * inputs + d]) : 0.0f;
		}
#pragma unroll
		for (int e = threadIdx.x; e < SIDE * SIDE; e += THREADS) {
			int d = FORWARD ? e % 8 + e / 32 % 4 * 8 : e / SIDE, j = FORWARD ? e / 8 % 4 + e / 128 * 4 : e % SIDE;
			t.of_side[d][j] = wide(w[FORWARD ? j * b.pitch + d : d * b.pitch + j]);
		}
		add_step(sum, t);
	}
#pragma unroll
	for (int j = 0; j < SHORT; j++) {
		int output = blockIdx.x * SIDE + side_place(j);
		float bias = p.bias ? wide(static_cast<const E *>(p.bias)[output]) : 0.0f;
#pragma unroll
		for (int i = 0; i < LONG; i++)
			if (token + tile_place(i) < p.n)
				static_cast<E *>(p.d)[static_cast<int64_t>(token + tile_place(i)) * outputs + output] = narrow<E>(sum[i][j] + bias);
	}
}

/* Grid (groups of kept blocks of 32 rows, rows of blocks). */
template <typename E> __global__ void __launch_bounds__(THREADS) sample(block_product p)
{
	SHARED(tiles, t, );
	int first, kept = p.kept_of(blockIdx.y, &first), group = blockIdx.x * BLOCK_GATHERED;
	int thread = threadIdx.x, mine = group + thread / SIDE; /* a thread reads a column */
	if (group >= kept) return;
	int column = mine < kept ? p.in_strip(first, kept, mine).place * SIDE + thread % SIDE : -1;
	results sum = {};
	for (int token = 0; token < p.n; token += SIDE) {
		const E *x = static_cast<const E *>(p.x), *y = static_cast<const E *>(p.y) + blockIdx.y * SIDE;
#pragma unroll 8
		for (int d = 0; d < SIDE; d++) {
			bool inside = column >= 0 && token + d < p.n;
			t.of_tile[d][thread] = inside ? wide(x[static_cast<int64_t>(token + d) * p.w.cols + column]) : 0.0f;
		}
#pragma unroll
		for (int e = threadIdx.x; e < SIDE * SIDE; e += THREADS)
			t.of_side[e / SIDE][e % SIDE] =
				token + e / SIDE < p.n ? wide(y[static_cast<int64_t>(token + e / SIDE) * p.w.rows + e % SIDE]) : 0.0f;
		add_step(sum, t);
	}
	float *d = static_cast<float *>(p.d) + first + group * SIDE;
#pragma unroll
	for (int i = 0; i < LONG; i++)
#pragma unroll
		for (int j = 0; j < SHORT; j++)
			if (group + tile_place(i) / SIDE < kept) d[side_place(j) * kept * SIDE + tile_place(i)] += sum[i][j];
}

} // namespace

template <typename E> int32_t blocks_plain(void *stream, block_kind kind, const block_product &p)
{
	unsigned rows = p.w.rows / SIDE, cols = p.w.cols / SIDE, tokens = parts(p.n, TILE);
	switch (kind) {
	case BLOCKS_FORWARD: LAUNCH((multiply<E, true>), dim3(rows, tokens), THREADS, 0, stream, p); break;
	case BLOCKS_INPUT: LAUNCH((multiply<E, false>), dim3(cols, tokens), THREADS, 0, stream, p); break;
	case BLOCKS_SAMPLE: LAUNCH(sample<E>, dim3(parts(cols, BLOCK_GATHERED), rows), THREADS, 0, stream, p); break;
	}
	return launched();
}

template int32_t blocks_plain<float>(void *, block_kind, const block_product &);
template int32_t blocks_plain<bf16>(void *, block_kind, const block_product &);
