/* Sparse matrices on the device. A product leads from input to output channels
 * of a matrix in compressed rows: the rows are the outputs forward and the inputs
 * backward.
 *
 * Four neighbouring outputs make a group and have one list: of the inputs that
 * any of them keeps, in ascending order, with four slots each, zeros where an
 * output leaves the input out. A thread that holds an input for some tokens in
 * registers uses it up to four times, where a list for every output would read it
 * once for every multiplication. With a fraction d of the entries kept, a list
 * has 1 - (1-d)⁴ of the inputs, and of its slots hold something
 *
 *	d      0.5   0.4   0.3   0.25  0.1   0.05  0.02
 *	used   0.53  0.46  0.39  0.37  0.29  0.27  0.26
 *
 * Lists are made anew in every call, because the pattern may have changed. Two
 * passes over the entries, of 4 and 8 bytes each: the first sets a bit for each
 * kept input of a group, the second puts entries where the bits before theirs
 * say. So a list depends on the pattern only, not on what ran first. They have
 * room for all inputs: 5 bytes for each element of the matrix. */
#ifndef DYNMO_SPARSE_CUH
#define DYNMO_SPARSE_CUH

#include "pack.cuh"

const int GROUP = 4; /* outputs of a list: more are zeros mostly, fewer use an input too seldom */
const int STRIP = 2; /* groups of neighbours that are computed together, to write whole sectors of 32 bytes */
const int CHUNK = 8; /* lists are filled up to a multiple of it with zeros */

/* The pattern of a matrix (rows, cols) in compressed rows. */
struct csr {
	const int32_t *row, *col;
	int32_t rows, cols, nnz;
};

/* The lists of a matrix, in device memory. Outputs are its rows, or, by_column,
 * its columns. */
struct sparse_lists {
	int32_t outputs, inputs, by_column;
	int32_t groups, strips, words; /* words: of bits, for the inputs */
	int64_t stride;                /* most inputs of a list */
	uint32_t *kept;                /* (groups, words) a bit for each input that the group keeps */
	int32_t *before;               /* (groups, words) inputs kept before those of a word */
	int32_t *length;               /* (groups) a multiple of CHUNK */
	int32_t *order;                /* (strips) the strips, longest first, to be computed in this order */
	int32_t *input;                /* (groups, stride) */
	void *slots;                   /* (groups, stride, GROUP) float values, or int32 numbers of entries */
};

/* Hands out parts of the workspace from base on, or, without one, counts them. */
struct parcels {
	uintptr_t base;
	size_t used;

	template <typename T> T *take(int64_t count)
	{
		T *part = reinterpret_cast<T *>(base + used);
		used += (count * sizeof(T) + 255) / 256 * 256;
		return part;
	}
};

/* sparse_lists_at describes w's lists, and takes their memory. */
sparse_lists sparse_lists_at(parcels *work, const csr &w, int by_column);

/* list_values fills lists with w's values, list_entries with the numbers of w's
 * entries, -1 where there is none. */
template <typename E> int32_t list_values(void *stream, const sparse_lists &lists, const csr &w, const E *values);
int32_t list_entries(void *stream, const sparse_lists &lists, const csr &w);

/* scatter_dense writes w as a dense matrix (rows, cols). */
template <typename E> int32_t scatter_dense(void *stream, E *dense, const csr &w, const E *values);

/* gather_dense adds to dvalues (nnz) the elements of dense (rows, cols) at w's entries. */
int32_t gather_dense(void *stream, float *dvalues, const float *dense, const csr &w);

/* Tokens of a tile, of which each lane of a warp has T. */
template <int T> constexpr int tile_tokens = 32 * T;

/* tiled_elements is the room for x (n, c) by tiles. */
inline int64_t tiled_elements(int64_t n, int64_t c, int tokens) { return parts(n, tokens) * tokens * c; }

/* tile_rows writes x (n, c) as (tiles, c, tokens of a tile), zeros after the last
 * token: a warp then reads one channel of a tile as whole cache lines. */
template <typename E> int32_t tile_rows(void *stream, E *tiles, const E *x, int32_t n, int32_t c, int32_t tokens);

/* sparse_multiply sets out (n, outputs) to the product of x, by tiles, with lists of
 * values, plus bias, which may be absent. few says that lists are short. */
template <typename E>
int32_t sparse_multiply(void *stream, E *out, const E *tiles, const sparse_lists &w, const E *bias, int32_t n, int few);

/* sparse_sample adds to dvalues Σ_n dout·inp at the entries that w lists, for dout
 * (n, outputs) and inp (n, inputs) by tiles. */
template <typename E>
int32_t sparse_sample(void *stream, float *dvalues, const E *dout, const E *inp, const sparse_lists &w, int32_t n);

/* The tokens that a lane has: T of a tile, in packs of width<E>. A lane's packs
 * lie 32 packs apart. */
template <typename E, int T> struct lane_tokens {
	static const int N = width<E>;
	static_assert(T % N == 0, "whole packs");
	float x[T];

	/* Loads the tokens from the packs of a channel that begin at this lane's first. */
	__device__ __forceinline__ void load(const pack<E> *channel)
	{
#pragma unroll
		for (int p = 0; p < T; p += N) {
			pack<E> part = channel[32 * (p / N)];
#pragma unroll
			for (int j = 0; j < N; j++)
				x[p + j] = part[j];
		}
	}

	/* at returns the place in the tile of the lane's token t. */
	static __device__ __forceinline__ int at(int t, int lane) { return 32 * (t / N * N) + lane * N + t % N; }
};

/* listed_group returns the group that comes at a place of the order, or one
 * that does not exist: w.groups or more. */
__device__ __forceinline__ int listed_group(const sparse_lists &w, int place)
{
	int strip = place / STRIP;
	return strip < w.strips ? w.order[strip] * STRIP + place % STRIP : w.groups;
}

#endif
