/* Grouped products on tensor cores, of bf16: 2·n·c·o operations. A block of eight warps
 * makes a tile of 128x128 results; each warp has 64x32 of them in registers. A block goes
 * through the summed dimension in order, 32 at a time. Shared memory has the operands of three
 * steps; two of these are still being copied. A row in shared memory is 16 bytes longer than
 * its elements: the eight rows that ldmatrix reads at once then lie in different banks.
 *
 * One block makes all of a result. Gradients of an expert are sums over all of its rows. So
 * no order of a sum depends on other work of the GPU. */
#include "grouped.cuh"
#include "mma.cuh"
#include "pack.cuh"

namespace {

enum { TILE = 128, DEPTH = 32, STAGES = 3, THREADS = 256, CHUNK = 8 /* elements of 16 bytes */ };
enum { ROW = TILE + CHUNK, COLUMN = DEPTH + CHUNK, STAGE = TILE * COLUMN }; /* elements in shared memory; a tile is as long both ways */
enum { WARP_ROWS = 64, WARP_COLUMNS = 32, OUT = WARP_COLUMNS + CHUNK, BAND = 16 };

/* A matrix of `sides` vectors of `depth` elements. DEEP: the elements of a vector are
 * contiguous; else elements of the same depth are. pitch is the step of the other dimension. */
template <bool DEEP> struct side {
	const bf16 *x;
	int64_t pitch;
	int sides, depth;

	/* Begins to copy the tile at vector `first`, element `depth_first`: DEEP as (128, 32),
	 * else as (32, 128). */
	__device__ __forceinline__ void copy(bf16 *tile, int first, int depth_first) const {
		constexpr int CHUNKS = (DEEP ? DEPTH : TILE) / CHUNK;
#pragma unroll
		for (int i = 0; i < TILE * DEPTH / CHUNK / THREADS; i++) {
			int index = i * THREADS + threadIdx.x, row = index / CHUNKS, at = index % CHUNKS * CHUNK;
			int s = first + (DEEP ? row : at), d = depth_first + (DEEP ? at : row);
			bool inside = s < sides && d < depth;
			const bf16 *from = x + (inside ? (DEEP ? s * pitch + d : d * pitch + s) : 0);
			cp_async_16(tile + row * (DEEP ? COLUMN : ROW) + at, from, inside);
		}
	}

	/* The A fragments of 16 vectors and 16 elements of depth. */
	__device__ __forceinline__ static void load_a(uint32_t (&a)[4], const bf16 *tile, int vector, int d) {
		int lane = threadIdx.x % 32;
		if constexpr (DEEP)
			ldmatrix_x4(a, tile + (vector + lane % 16) * COLUMN + d + lane / 16 * 8);
		else
			ldmatrix_x4_trans(a, tile + (d + lane / 16 * 8 + lane % 8) * ROW + vector + lane / 8 % 2 * 8);
	}

	/* The B fragments of 16 vectors, two of the first eight and two of the others, and 16
	 * elements of depth. */
	__device__ __forceinline__ static void load_b(uint32_t (&b)[4], const bf16 *tile, int vector, int d) {
		int lane = threadIdx.x % 32;
		if constexpr (DEEP)
			ldmatrix_x4(b, tile + (vector + lane / 16 * 8 + lane % 8) * COLUMN + d + lane / 8 % 2 * 8);
		else
			ldmatrix_x4_trans(b, tile + (d + lane % 16) * ROW + vector + lane / 16 * 8);
	}
};

/* A thread's part of its warp's 64x32 results: four times four D fragments. */
typedef float results[WARP_ROWS / 16][WARP_COLUMNS / 8][4];

__device__ __forceinline__ int warp_row() { return threadIdx.x / 128 * WARP_ROWS; }
__device__ __forceinline__ int warp_column() { return threadIdx.x / 32 % 4 * WARP_COLUMNS; }

/* Adds one step's product. */
template <bool DEEP_A, bool DEEP_B>
__device__ __forceinline__ void multiply(results &sum, const bf16 *a, const bf16 *b) {
#pragma unroll
	for (int d = 0; d < DEPTH; d += 16) {
		uint32_t rows[WARP_ROWS / 16][4], columns[WARP_COLUMNS / 16][4];
#pragma unroll
		for (int m = 0; m < WARP_ROWS / 16; m++) side<DEEP_A>::load_a(rows[m], a, warp_row() + 16 * m, d);
#pragma unroll
		for (int n = 0; n < WARP_COLUMNS / 16; n++) side<DEEP_B>::load_b(columns[n], b, warp_column() + 16 * n, d);
#pragma unroll
		for (int m = 0; m < WARP_ROWS / 16; m++)
#pragma unroll
			for (int n = 0; n < WARP_COLUMNS / 8; n++)
				mma_bf16_16816(sum[m][n], rows[m], columns[n / 2][n % 2 * 2], columns[n / 2][n % 2 * 2 + 1]);
	}
}

/* Adds to sum the product of the tile at (row, column), over all of the depth. */
template <bool DEEP_A, bool DEEP_B>
__device__ __forceinline__ void product(results &sum, bf16 *tiles, const side<DEEP_A> &a, const side<DEEP_B> &b, int row,
	int column) {
	int steps = (a.depth + DEPTH - 1) / DEPTH;
	auto begin = [&](int step) {
		bf16 *at = tiles + step % STAGES * 2 * STAGE;
		if (step < steps) {
			a.copy(at, row, step * DEPTH);
			b.copy(at + STAGE, column, step * DEPTH);
		}
		cp_async_commit(); /* of nothing, where nothing is left: waits count groups */
	};
	for (int step = 0; step < STAGES - 1; step++) begin(step);
	for (int step = 0; step < steps; step++) {
		cp_async_wait<STAGES - 2>();
		__syncthreads(); /* this step is there, and no thread reads the one before any more */
		begin(step + STAGES - 1);
		const bf16 *at = tiles + step % STAGES * 2 * STAGE;
		multiply<DEEP_A, DEEP_B>(sum, at, at + STAGE);
	}
	__syncthreads(); /* the last step has waited for all copies, and no thread reads a tile any more */
}

/* Stores the results inside d (rows, width) as bf16, 16 bytes at a time, by way of shared
 * memory. Each warp has its own place there. */
__device__ __forceinline__ void store_rows(bf16 *d, bf16 *shared, const results &sum, int row, int rows, int column,
	int width) {
	int lane = threadIdx.x % 32;
	bf16 *own = shared + threadIdx.x / 32 * WARP_ROWS * OUT;
#pragma unroll
	for (int m = 0; m < WARP_ROWS / 16; m++)
#pragma unroll
		for (int n = 0; n < WARP_COLUMNS / 8; n++)
#pragma unroll
			for (int half = 0; half < 2; half++) {
				bf16 *to = own + (16 * m + 8 * half + lane / 4) * OUT + 8 * n + lane % 4 * 2;
				*reinterpret_cast<uint32_t *>(to) = pack_bf16(sum[m][n][2 * half], sum[m][n][2 * half + 1]);
			}
	__syncwarp();
	row += warp_row();
	column += warp_column() + lane % 4 * CHUNK;
#pragma unroll
	for (int i = lane / 4; i < WARP_ROWS; i += 8)
		if (row + i < rows && column < width)
			*reinterpret_cast<pack<bf16> *>(d + static_cast<int64_t>(row + i) * width + column) =
				*reinterpret_cast<const pack<bf16> *>(own + i * OUT + lane % 4 * CHUNK);
}

__host__ __device__ __forceinline__ unsigned tiles_of(int length) { return (length + TILE - 1) / TILE; }

/* Grid (tiles of rows times tiles of columns) of FORWARD and INPUT: `inner` elements are summed, and
 * rows of d have `outer`. Blocks that run together read few tiles of x and of a matrix: BAND tiles of
 * rows take all tiles of columns before the next ones do. */
template <bool FORWARD> __global__ void __launch_bounds__(THREADS, 2) multiply_rows(grouped g, int inner, int outer) {
	DYNAMIC_SHARED(bf16, tiles);
	unsigned columns = tiles_of(outer), rows = gridDim.x / columns, band = blockIdx.x / (BAND * columns) * BAND;
	unsigned within = blockIdx.x - band * columns, height = min(rows - band, static_cast<unsigned>(BAND));
	grouped_rows of = grouped_tile(g, band + within % height, TILE);
	if (of.expert == g.experts) return;
	int column = within / height * TILE;
	side<true> x = {static_cast<const bf16 *>(g.x), inner, of.hi, inner};
	side<FORWARD> weight = {static_cast<const bf16 *>(g.y) + of.expert * g.stride, FORWARD ? inner : outer, outer, inner};
	results sum = {};
	product(sum, tiles, x, weight, of.lo, column);
	store_rows(static_cast<bf16 *>(g.d), tiles, sum, of.lo, of.hi, column, outer);
}

/* Grid (tiles of c, of o, experts). */
__global__ void __launch_bounds__(THREADS, 2) add_weights(grouped g) {
	DYNAMIC_SHARED(bf16, tiles);
	int lo = g.ends[blockIdx.z], rows = g.ends[blockIdx.z + 1] - lo;
	if (rows == 0) return;
	int row = blockIdx.y * TILE, column = blockIdx.x * TILE, lane = threadIdx.x % 32;
	side<false> x = {static_cast<const bf16 *>(g.x) + static_cast<int64_t>(lo) * g.o, g.o, g.o, rows};
	side<false> y = {static_cast<const bf16 *>(g.y) + static_cast<int64_t>(lo) * g.c, g.c, g.c, rows};
	results sum = {};
	product(sum, tiles, x, y, row, column);
	float *d = static_cast<float *>(g.d) + blockIdx.z * g.stride;
	row += warp_row() + lane / 4;
	column += warp_column() + lane % 4 * 2;
#pragma unroll
	for (int m = 0; m < WARP_ROWS / 16; m++)
#pragma unroll
		for (int n = 0; n < WARP_COLUMNS / 8; n++)
#pragma unroll
			for (int half = 0; half < 2; half++) {
				int i = row + 16 * m + 8 * half, j = column + 8 * n;
				if (i >= g.o || j >= g.c) continue;
				float2 *at = reinterpret_cast<float2 *>(d + static_cast<int64_t>(i) * g.c + j), old = *at;
				*at = {old.x + sum[m][n][2 * half], old.y + sum[m][n][2 * half + 1]};
			}
}

constexpr size_t BYTES = STAGES * 2 * STAGE * sizeof(bf16);

int32_t on_tensor_cores(void *stream, grouped_kind kind, const grouped &g) {
	unsigned rows = grouped_tiles(g, TILE);
	int32_t status = kind == GROUPED_FORWARD ? allow_shared(multiply_rows<true>, BYTES)
		: kind == GROUPED_INPUT              ? allow_shared(multiply_rows<false>, BYTES)
											 : allow_shared(add_weights, BYTES);
	if (status) return status;
	switch (kind) {
	case GROUPED_FORWARD: LAUNCH((multiply_rows<true>), rows * tiles_of(g.o), THREADS, BYTES, stream, g, g.c, g.o); break;
	case GROUPED_INPUT: LAUNCH((multiply_rows<false>), rows * tiles_of(g.c), THREADS, BYTES, stream, g, g.o, g.c); break;
	case GROUPED_WEIGHT: LAUNCH(add_weights, dim3(tiles_of(g.c), tiles_of(g.o), g.experts), THREADS, BYTES, stream, g); break;
	}
	return launched();
}

/* Copies of 16 bytes want rows and matrices that begin at multiples of them. */
int32_t run(dynmo_cuda *k, void *stream, grouped_kind kind, const grouped &g) {
	if (g.n == 0 || g.c == 0 || g.o == 0 || g.experts == 0) return 0;
	if (k->type == DYNMO_CUDA_F32) return grouped_plain<float>(stream, kind, g);
	bool whole = g.c % CHUNK == 0 && g.o % CHUNK == 0 && g.stride % CHUNK == 0 && aligned(g.d, g.x, g.y);
	return whole ? on_tensor_cores(stream, kind, g) : grouped_plain<bf16>(stream, kind, g);
}

} // namespace

int32_t dynmo_cuda_grouped_forward(dynmo_cuda *k, void *stream, void *out, const void *inp, const void *weights,
	const int32_t *ends, int32_t n, int32_t c, int32_t o, int32_t experts, int64_t stride) {
	return run(k, stream, GROUPED_FORWARD, {out, inp, weights, ends, n, c, o, experts, stride});
}

int32_t dynmo_cuda_grouped_backward_input(dynmo_cuda *k, void *stream, void *dinp, const void *dout, const void *weights,
	const int32_t *ends, int32_t n, int32_t c, int32_t o, int32_t experts, int64_t stride) {
	return run(k, stream, GROUPED_INPUT, {dinp, dout, weights, ends, n, c, o, experts, stride});
}

int32_t dynmo_cuda_grouped_backward_weight(dynmo_cuda *k, void *stream, float *dweights, const void *dout,
	const void *inp, const int32_t *ends, int32_t n, int32_t c, int32_t o, int32_t experts, int64_t stride) {
	return run(k, stream, GROUPED_WEIGHT, {dweights, dout, inp, ends, n, c, o, experts, stride});
}
