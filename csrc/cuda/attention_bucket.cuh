/* Tiles of a head's rows in the order of its buckets, for tensor cores. A block of four
 * warps owns 64 rows, 16 a warp, and goes over tiles of 64 columns. */
#ifndef DYNMO_ATTENTION_BUCKET_CUH
#define DYNMO_ATTENTION_BUCKET_CUH

#include "attention_sorted.cuh"
#include "attention_tile.cuh"

static_assert(TILE_ROWS == SORTED_ROWS, "a block has the rows whose ranges it knows");

/* Begins to copy rows [first, first + 64) of m. Rows from t on are 0. */
template <int HS>
__device__ __forceinline__ void load_sorted(bf16 *tile, sorted_rows<const bf16> m, int first, int t) {
	constexpr int CHUNKS = HS / 8, STEP = TILE_THREADS / CHUNKS; /* of 16 bytes, in a row; rows at once */
	int row = threadIdx.x / CHUNKS, column = threadIdx.x % CHUNKS * 8;
#pragma unroll
	for (int i = 0; i < TILE_ROWS / STEP; i++) {
		bool inside = first + row + i * STEP < t;
		const bf16 *from = inside ? m.row(first + row + i * STEP) + column : m.first;
		cp_async_16(tile + (row + i * STEP) * TILE_STRIDE<HS> + column, from, inside);
	}
}

/* The A fragments of the warp's 16 rows of a tile. */
template <int HS> __device__ __forceinline__ void own_rows(uint32_t (&a)[HS / 16][4], const bf16 *tile) {
	int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
#pragma unroll
	for (int k = 0; k < HS / 16; k++)
		ldmatrix_x4(a[k], tile + (row + lane % 16) * TILE_STRIDE<HS> + 16 * k + lane / 16 * 8);
}

/* Writes d (16 rows) to those rows [first, first + 16) of m that are below t. The first 8 rows
 * are scaled by upper, the others by lower. A lane stores 16 bytes, by way of the warp's tile. */
template <int HS>
__device__ __forceinline__ void store_sorted(sorted_rows<bf16> m, bf16 *tile, const float (&d)[HS / 8][4], int first,
	int t, float upper, float lower) {
	constexpr int CHUNKS = HS / 8;
	int lane = threadIdx.x % 32;
	bf16 *own = tile + threadIdx.x / 32 * 16 * TILE_STRIDE<HS>;
#pragma unroll
	for (int n = 0; n < HS / 8; n++) {
		bf16 *to = own + lane / 4 * TILE_STRIDE<HS> + 8 * n + lane % 4 * 2;
		*reinterpret_cast<uint32_t *>(to) = pack_bf16(d[n][0] * upper, d[n][1] * upper);
		*reinterpret_cast<uint32_t *>(to + 8 * TILE_STRIDE<HS>) = pack_bf16(d[n][2] * lower, d[n][3] * lower);
	}
	__syncwarp();
#pragma unroll
	for (int i = 0; i < CHUNKS / 2; i++) {
		int row = (i * 32 + lane) / CHUNKS, column = lane % CHUNKS * 8;
		if (first + row < t)
			*reinterpret_cast<uint4 *>(m.row(first + row) + column) =
				*reinterpret_cast<const uint4 *>(own + row * TILE_STRIDE<HS> + column);
	}
	__syncwarp(); /* no lane writes there before all have read */
}

/* The columns that the warp's rows may see: those of rows g and g+8, and of all 16. */
struct warp_reach {
	reach row[2], all;

	__device__ __forceinline__ warp_reach(const row_reach &seen, int rows) {
		int first = threadIdx.x / 32 * 16, g = first + threadIdx.x % 32 / 4;
		for (int half = 0; half < 2; half++) row[half] = g + 8 * half < rows ? seen[g + 8 * half] : reach{0, 0};
		all = first < rows ? reach{seen[first].lo, seen[min(first + 15, rows - 1)].hi} : reach{0, 0};
	}
	/* Whether any row may see one of columns [column, column + columns). */
	__device__ __forceinline__ bool meets(int column, int columns) const {
		return column < all.hi && column + columns > all.lo;
	}
};

/* Returns the next column, from column + 64 on, that a row sees; end if there is none. */
__device__ __forceinline__ int next_tile(const row_reach &seen, int rows, int column, int end) {
	column += TILE_ROWS;
	return column < end ? next_seen(seen, rows, column) : end;
}

#endif
