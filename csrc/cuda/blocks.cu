/* Products with blocks on tensor cores, of bf16: 2·n operations for a kept value. A block of
 * two warps makes a tile. Shared memory has the operands of three steps; two of these are still
 * being copied. A row in shared memory is 16 bytes longer than its elements: the eight rows that
 * ldmatrix reads at once then lie in different banks.
 *
 * For a step of 2·128·32·32 operations 10 KB come from the L2 cache: 26 operations for a
 * byte, which at 5 TB/s, about an H100's, are 130 TFLOP/s. */
#include "blocks.cuh"
#include "mma.cuh"

namespace {

enum { TILE = BLOCK_TILE, SIDE = BLOCK_SIDE, THREADS = 64, STAGES = 3, CHUNK = 8 /* elements of 16 bytes */ };
enum { NARROW = SIDE + CHUNK, WIDE = TILE + CHUNK };                     /* a row in shared memory */
enum { X = TILE * NARROW, STAGE = X + SIDE * NARROW };                   /* elements: of x's tile, of a step of multiply */
enum { GATHERED = SIDE * WIDE, SAMPLED = GATHERED + SIDE * NARROW };     /* the same of sample */
enum { WARP_ROWS = TILE / 2, WARP_COLUMNS = TILE / 2 };                  /* of a tile, that a warp makes */

/* Begins to copy a matrix (ROWS, 32), its rows pitch apart. Rows from `rows` on are 0. */
template <int ROWS> __device__ __forceinline__ void copy_rows(bf16 *tile, const bf16 *x, int64_t pitch, int rows)
{
	constexpr int CHUNKS = SIDE / CHUNK;
#pragma unroll
	for (int i = 0; i < ROWS * CHUNKS / THREADS; i++) {
		int index = i * THREADS + threadIdx.x, row = index / CHUNKS, at = index % CHUNKS * CHUNK;
		cp_async_16(tile + row * NARROW + at, x + (row < rows ? row * pitch + at : 0), row < rows);
	}
}

/* Stores 64x32 results with biases, 16 bytes at a time, by way of shared memory. They take the
 * place of the warp's own rows of the first step's tile, which no other warp reads. All copies
 * have ended before the last barrier. */
__device__ __forceinline__ void store_rows(bf16 *d, bf16 *shared, const float (&sum)[4][4][4], const bf16 *bias, int rows,
	int64_t pitch)
{
	int lane = threadIdx.x % 32;
	static_assert(X == 2 * WARP_ROWS * NARROW, "a warp's results take the place of its rows");
	bf16 *own = shared + threadIdx.x / 32 * WARP_ROWS * NARROW;
#pragma unroll
	for (int n = 0; n < SIDE / 8; n++) {
		float low = bias ? wide(bias[8 * n + lane % 4 * 2]) : 0, high = bias ? wide(bias[8 * n + lane % 4 * 2 + 1]) : 0;
#pragma unroll
		for (int m = 0; m < WARP_ROWS / 16; m++)
#pragma unroll
			for (int half = 0; half < 2; half++)
				*reinterpret_cast<uint32_t *>(own + (16 * m + 8 * half + lane / 4) * NARROW + 8 * n + lane % 4 * 2) =
					pack_bf16(sum[m][n][2 * half] + low, sum[m][n][2 * half + 1] + high);
	}
	__syncwarp();
#pragma unroll
	for (int i = lane / 4; i < WARP_ROWS; i += 8)
		if (i < rows)
			*reinterpret_cast<pack<bf16> *>(d + i * pitch + lane % 4 * CHUNK) =
				*reinterpret_cast<const pack<bf16> *>(own + i * NARROW + lane % 4 * CHUNK);
}

/* Grid (blocks of outputs, tiles of tokens). */
template <bool FORWARD> __global__ void __launch_bounds__(THREADS, 5) multiply(block_product p)
{
	DYNAMIC_SHARED(bf16, tiles);
	int inputs = FORWARD ? p.w.cols : p.w.rows, outputs = FORWARD ? p.w.rows : p.w.cols;
	int token = blockIdx.y * TILE, lane = threadIdx.x % 32, row = threadIdx.x / 32 * WARP_ROWS;
	block_walk<FORWARD> blocks(p, blockIdx.x);
	const bf16 *x = static_cast<const bf16 *>(p.x) + static_cast<int64_t>(token) * inputs;
	auto begin = [&](int step) {
		bf16 *at = tiles + step % STAGES * STAGE;
		if (step < blocks.kept) {
			block_kept b = blocks[step];
			copy_rows<TILE>(at, x + b.place * SIDE, inputs, p.n - token);
			copy_rows<SIDE>(at + X, static_cast<const bf16 *>(p.y) + b.value, b.pitch, SIDE);
		}
		cp_async_commit(); /* of nothing, where nothing is left: waits count groups */
	};
	float sum[WARP_ROWS / 16][SIDE / 8][4] = {};
	for (int step = 0; step < STAGES - 1; step++)
		begin(step);
	for (int step = 0; step < blocks.kept; step++) {
		cp_async_wait<STAGES - 2>();
		__syncthreads(); /* this step is there, and no thread reads the one before any more */
		begin(step + STAGES - 1);
		const bf16 *a = tiles + step % STAGES * STAGE, *b = a + X;
#pragma unroll
		for (int d = 0; d < SIDE; d += 16) {
			uint32_t rows[WARP_ROWS / 16][4], columns[SIDE / 16][4];
#pragma unroll
			for (int m = 0; m < WARP_ROWS / 16; m++)
				ldmatrix_x4(rows[m], a + (row + 16 * m + lane % 16) * NARROW + d + lane / 16 * 8);
#pragma unroll
			for (int n = 0; n < SIDE / 16; n++)
				if constexpr (FORWARD)
					ldmatrix_x4(columns[n], b + (16 * n + lane / 16 * 8 + lane % 8) * NARROW + d + lane / 8 % 2 * 8);
				else
					ldmatrix_x4_trans(columns[n], b + (d + lane % 16) * NARROW + 16 * n + lane / 16 * 8);
#pragma unroll
			for (int m = 0; m < WARP_ROWS / 16; m++)
#pragma unroll
				for (int n = 0; n < SIDE / 8; n++)
					mma_bf16_16816(sum[m][n], rows[m], columns[n / 2][n % 2 * 2], columns[n / 2][n % 2 * 2 + 1]);
		}
	}
	const bf16 *bias = p.bias ? static_cast<const bf16 *>(p.bias) + blockIdx.x * SIDE : nullptr;
	store_rows(static_cast<bf16 *>(p.d) + static_cast<int64_t>(token + row) * outputs + blockIdx.x * SIDE, tiles, sum, bias,
		p.n - token - row, outputs);
}

/* Grid (groups of kept blocks of 32 rows, rows of blocks). A warp makes 32x64 results. */
__global__ void __launch_bounds__(THREADS, 5) sample(block_product p)
{
	DYNAMIC_SHARED(bf16, tiles);
	int lane = threadIdx.x % 32, column = threadIdx.x / 32 * WARP_COLUMNS, first, group = blockIdx.x * BLOCK_GATHERED;
	int kept = p.kept_of(blockIdx.y, &first), steps = (p.n + SIDE - 1) / SIDE;
	if (group >= kept) return;
	const bf16 *x = static_cast<const bf16 *>(p.x), *y = static_cast<const bf16 *>(p.y) + blockIdx.y * SIDE;
	constexpr int CHUNKS = TILE / CHUNK; /* of a row of x's tile; a thread has the same chunk of every row it copies */
	int gathered = group + threadIdx.x % CHUNKS * CHUNK / SIDE;
	bool inside = gathered < kept;
	const bf16 *mine = x + (inside ? p.in_strip(first, kept, gathered).place * SIDE + threadIdx.x % CHUNKS * CHUNK % SIDE : 0);
	auto begin = [&](int step) {
		bf16 *at = tiles + step % STAGES * SAMPLED;
		int token = step * SIDE;
		if (step < steps) {
#pragma unroll
			for (int row = threadIdx.x / CHUNKS; row < SIDE; row += THREADS / CHUNKS) {
				bool there = inside && token + row < p.n;
				cp_async_16(at + row * WIDE + threadIdx.x % CHUNKS * CHUNK,
					mine + (there ? static_cast<int64_t>(token + row) * p.w.cols : 0), there);
			}
			copy_rows<SIDE>(at + GATHERED, y + static_cast<int64_t>(token) * p.w.rows, p.w.rows, p.n - token);
		}
		cp_async_commit(); /* of nothing, where nothing is left: waits count groups */
	};
	float sum[SIDE / 16][WARP_COLUMNS / 8][4] = {};
	for (int step = 0; step < STAGES - 1; step++)
		begin(step);
	for (int step = 0; step < steps; step++) {
		cp_async_wait<STAGES - 2>();
		__syncthreads(); /* this step is there, and no thread reads the one before any more */
		begin(step + STAGES - 1);
		const bf16 *b = tiles + step % STAGES * SAMPLED, *a = b + GATHERED;
#pragma unroll
		for (int d = 0; d < SIDE; d += 16) {
			uint32_t rows[SIDE / 16][4], columns[WARP_COLUMNS / 16][4];
#pragma unroll
			for (int m = 0; m < SIDE / 16; m++)
				ldmatrix_x4_trans(rows[m], a + (d + lane / 16 * 8 + lane % 8) * NARROW + 16 * m + lane / 8 % 2 * 8);
#pragma unroll
			for (int n = 0; n < WARP_COLUMNS / 16; n++)
				ldmatrix_x4_trans(columns[n], b + (d + lane % 16) * WIDE + column + 16 * n + lane / 16 * 8);
#pragma unroll
			for (int m = 0; m < SIDE / 16; m++)
#pragma unroll
				for (int n = 0; n < WARP_COLUMNS / 8; n++)
					mma_bf16_16816(sum[m][n], rows[m], columns[n / 2][n % 2 * 2], columns[n / 2][n % 2 * 2 + 1]);
		}
	}
	float *d = static_cast<float *>(p.d) + first + group * SIDE;
#pragma unroll
	for (int n = 0; n < WARP_COLUMNS / 8; n++) {
		int j = column + 8 * n + lane % 4 * 2;
		if (group + j / SIDE >= kept) continue;
#pragma unroll
		for (int m = 0; m < SIDE / 16; m++)
#pragma unroll
			for (int half = 0; half < 2; half++) {
				float2 *at = reinterpret_cast<float2 *>(d + (16 * m + 8 * half + lane / 4) * kept * SIDE + j), old = *at;
				*at = {old.x + sum[m][n][2 * half], old.y + sum[m][n][2 * half + 1]};
			}
	}
}

int32_t on_tensor_cores(void *stream, block_kind kind, const block_product &p)
{
	unsigned rows = p.w.rows / SIDE, cols = p.w.cols / SIDE, tokens = parts(p.n, TILE);
	constexpr size_t BYTES = STAGES * STAGE * sizeof(bf16), SAMPLE_BYTES = STAGES * SAMPLED * sizeof(bf16);
	static_assert(BYTES <= 48 << 10 && SAMPLE_BYTES <= 48 << 10, "what any kernel may have");
	switch (kind) {
	case BLOCKS_FORWARD: LAUNCH(multiply<true>, dim3(rows, tokens), THREADS, BYTES, stream, p); break;
	case BLOCKS_INPUT: LAUNCH(multiply<false>, dim3(cols, tokens), THREADS, BYTES, stream, p); break;
	case BLOCKS_SAMPLE: LAUNCH(sample, dim3(parts(cols, BLOCK_GATHERED), rows), THREADS, SAMPLE_BYTES, stream, p); break;
	}
	return launched();
}

/* A warp lists the kept blocks of a column of blocks, by row: a lane looks for the column
 * among the ascending ones of a row of blocks. */
__global__ void __launch_bounds__(32) list_columns(block_kept *lists, int32_t *counts, block_product p)
{
	int strips = p.w.rows / SIDE, column = blockIdx.x, count = 0;
	for (int base = 0; base < strips; base += 32) {
		int strip = base + threadIdx.x, first = 0, kept = strip < strips ? p.kept_of(strip, &first) : 0, low = 0, high = kept;
		while (low < high) {
			int middle = (low + high) / 2;
			if (p.in_strip(first, kept, middle).place < column)
				low = middle + 1;
			else
				high = middle;
		}
		bool has = low < kept && p.in_strip(first, kept, low).place == column;
		unsigned those = __ballot_sync(0xffffffff, has);
		if (has)
			lists[static_cast<int64_t>(column) * strips + count + __popc(those & ((1u << threadIdx.x) - 1))] =
				{strip, first + low * SIDE, kept * SIDE};
		count += __popc(those);
	}
	if (threadIdx.x == 0) counts[column] = count;
}

} // namespace

int32_t blocks_multiply(dynmo_cuda *k, void *stream, block_kind kind, block_product p)
{
	if (p.n == 0 || p.w.rows == 0 || p.w.cols == 0) return 0;
	if (kind == BLOCKS_INPUT) {
		int32_t rows = p.w.rows / SIDE, cols = p.w.cols / SIDE;
		void *work;
		auto take_all = [&](parcels from) {
			p.lists = from.take<block_kept>(static_cast<int64_t>(rows) * cols);
			p.counts = from.take<int32_t>(cols);
			return from.used;
		};
		if (int32_t status = workspace(k, take_all({}), &work)) return status;
		take_all({reinterpret_cast<uintptr_t>(work), 0});
		LAUNCH(list_columns, cols, 32, 0, stream, const_cast<block_kept *>(p.lists), const_cast<int32_t *>(p.counts), p);
		if (int32_t status = launched()) return status;
	}
	if (k->type == DYNMO_CUDA_F32) return blocks_plain<float>(stream, kind, p);
	return aligned(p.d, p.x, p.y) ? on_tensor_cores(stream, kind, p) : blocks_plain<bf16>(stream, kind, p);
}
