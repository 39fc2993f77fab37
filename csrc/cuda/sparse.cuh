/* Sparse matrices on the device. A product leads from input to output channels
 * of a matrix in compressed rows: the rows are the outputs forward and the inputs
 * backward.
 *
 * For gradients of entries four neighbouring outputs are a group with one list. The list has
 * the inputs that any of the four keeps, in ascending order. An input has a slot for each
 * output; the slot is empty if the output does not keep the input. A thread with an input of
 * some tokens in registers uses the input up to four times. A list for every output would read
 * the input once for every multiplication. If a fraction d of the entries is kept, a list
 * has 1 - (1-d)⁴ of the inputs. This fraction of its slots is used:
 *
 *	d      0.5   0.4   0.3   0.25  0.1   0.05  0.02
 *	used   0.53  0.46  0.39  0.37  0.29  0.27  0.26
 *
 * Float products have a list for each output: short_lists.
 *
 * Lists are made anew in every call, because the pattern may have changed. That takes two
 * passes over the entries, of 4 and 8 bytes an entry. The first pass sets a bit for each kept
 * input of a list. The second pass finds an entry's place by the count of bits before its own.
 * So a list depends on the pattern alone, not on the order of threads. Lists of groups have
 * room for all inputs: 5 bytes for each element of the matrix. */
#ifndef DYNMO_SPARSE_CUH
#define DYNMO_SPARSE_CUH

#include "pack.cuh"

const int GROUP = 4; /* outputs of a list: with more, most slots are empty; with fewer, an input is used too seldom */
const int STRIP = 2; /* groups of neighbours that are computed together, to write whole sectors of 32 bytes */
const int CHUNK = 8; /* lists are filled up to a multiple of it with zeros */

/* The pattern of a matrix (rows, cols) in compressed rows. */
struct csr {
	const int32_t *row, *col;
	int32_t rows, cols, nnz;
};

/* The lists of a matrix, in device memory. Outputs are its rows. */
struct sparse_lists {
	int32_t outputs, inputs;
	int32_t groups, strips, words; /* words: of bits, for the inputs */
	int64_t stride;                /* most inputs of a list */
	uint32_t *kept;                /* (groups, words) a bit for each input that the group keeps */
	int32_t *before;               /* (groups, words) inputs kept before those of a word */
	int32_t *length;               /* (groups) a multiple of CHUNK */
	int32_t *order;                /* (strips) the strips, longest first, to be computed in this order */
	int32_t *input;                /* (groups, stride) */
	int32_t *slots;                /* (groups, stride, GROUP) numbers of entries, or -1 */
};

/* Inputs of a chunk and outputs of a warp in sparse_short.cu. A byte holds the length of a list. */
const int CHUNK_INPUTS = 256, WARP_OUTPUTS = 16;

/* The lists of a matrix for a product, in device memory: one list for each output and chunk of
 * inputs. Outputs are its rows, or, by_column, its columns. A list has its entries by ascending
 * input, two to a pair. A zero fills the last pair. The lists of WARP_OUTPUTS outputs, a group,
 * are contiguous: by chunk, then by output. */
struct short_lists {
	int32_t outputs, inputs, by_column;
	int32_t groups, chunks;
	uint32_t *kept;  /* (groups·WARP_OUTPUTS, chunks, CHUNK_INPUTS/32) a bit for each input that the output keeps */
	int32_t *taken;  /* pairs of the groups that have their place; cleared together with kept */
	int32_t *base;   /* (groups) first pair of a group: which group comes first in memory may vary */
	int32_t *first;  /* (groups, chunks, WARP_OUTPUTS) first pair of a list, counted from the group's */
	uint8_t *length; /* (groups, chunks, WARP_OUTPUTS) pairs of a list */
	uint2 *entries;  /* place of the input in its chunk, in bytes of float, and value */
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

/* These describe w's lists, and take their memory. */
sparse_lists sparse_lists_at(parcels *work, const csr &w);
short_lists short_lists_at(parcels *work, const csr &w, int by_column);

/* list_entries fills lists with the numbers of w's entries, list_short with its values. */
int32_t list_entries(void *stream, const sparse_lists &lists, const csr &w);
int32_t list_short(void *stream, const short_lists &lists, const csr &w, const float *values);

/* scatter_dense writes w as a dense matrix (rows, cols). */
template <typename E> int32_t scatter_dense(void *stream, E *dense, const csr &w, const E *values);

/* gather_dense adds to dvalues (nnz) the elements of dense (rows, cols) at w's entries. */
int32_t gather_dense(void *stream, float *dvalues, const float *dense, const csr &w);

/* Tokens of a tile: each lane of a warp has T. */
template <int T> constexpr int tile_tokens = 32 * T;

/* tiled_elements is the room for x (n, c) by tiles. */
inline int64_t tiled_elements(int64_t n, int64_t c, int tokens) { return parts(n, tokens) * tokens * c; }

/* tile_rows writes x (n, c) as (tiles, c, tokens of a tile), zeros after the last
 * token: a warp then reads one channel of a tile as whole cache lines. */
template <typename E> int32_t tile_rows(void *stream, E *tiles, const E *x, int32_t n, int32_t c, int32_t tokens);

/* short_multiply sets out (n, outputs) to the product of x (n, inputs) with lists, plus bias,
 * which may be absent. A block needs SHORT_SHARED bytes of shared memory. */
extern const int SHORT_SHARED;
int32_t short_multiply(void *stream, float *out, const float *x, const short_lists &w, const float *bias, int32_t n);

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
