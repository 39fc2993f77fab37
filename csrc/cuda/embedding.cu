/* Tokens and positions, which index their tables.
 *
 * Forward moves 3·n·c elements, backward reads dout twice and adds to each row
 * of the float tables once. For dwte the tokens are sorted first, equal ones in
 * ascending order of place, by counting for each how many come before it: n²
 * comparisons, at n = 16384 some tens of microseconds of integer work. Then one
 * warp adds up all rows of a token, for a tile of 32 packs of columns, in that
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
forward(E *out, const int32_t *tokens, const E *wte, const E *wpe, int n, int t, int c)
{
	const int N = width<E>;
	int i = warp_row(), at = tile_column<E>();
	if (i >= n || at >= c) return;
	pack<E> token = read<VECTOR, N>(wte + static_cast<int64_t>(tokens[i]) * c, at, c);
	pack<E> position = read<VECTOR, N>(wpe + static_cast<int64_t>(i % t) * c, at, c);
	float sum[N];
#pragma unroll
	for (int j = 0; j < N; j++)
		sum[j] = token[j] + position[j];
	write<VECTOR>(out + static_cast<int64_t>(i) * c, at, c, pack<E>::of(sum));
}

/* Adds to a row of a float table the rows of dout that place(i) names, 0 <= i < many. */
template <bool VECTOR, typename E, typename PLACE>
__device__ __forceinline__ void add_rows(float *row, const E *dout, PLACE place, int many, int at, int c)
{
	const int N = width<E>;
	pack<float, N> sum = read<VECTOR, N>(row, at, c);
#pragma unroll 8
	for (int i = 0; i < many; i++) {
		pack<E> x = read<VECTOR, N>(dout + place(i) * c, at, c);
#pragma unroll
		for (int j = 0; j < N; j++)
			sum.words[j] += x[j];
	}
	write<VECTOR>(row, at, c, sum);
}

/* The rows of dout at a position: every t-th. */
struct every {
	int64_t first;
	int t;

	__device__ __forceinline__ int64_t operator()(int i) const { return first + static_cast<int64_t>(i) * t; }
};

template <typename E, bool VECTOR>
__global__ void __launch_bounds__(32 * WARPS) positions(float *dwpe, const E *dout, int b, int t, int c)
{
	int i = warp_row(), at = tile_column<E>();
	if (i < t && at < c) add_rows<VECTOR>(dwpe + static_cast<int64_t>(i) * c, dout, every{i, t}, b, at, c);
}

/* order[r] is the r-th token's place, by value and then by place. */
__global__ void __launch_bounds__(32 * WARPS) sort_tokens(int32_t *order, const int32_t *tokens, int n)
{
	int i = warp_row(), lane = threadIdx.x, before = 0, mine = i < n ? tokens[i] : 0;
	if (i < n) {
#pragma unroll 8
		for (int j = lane; j < n; j += 32)
			before += tokens[j] < mine + (j < i);
	}
#pragma unroll
	for (int apart = 16; apart > 0; apart /= 2)
		before += __shfl_xor_sync(0xffffffff, before, apart);
	if (lane == 0 && i < n) order[before] = i;
}

/* The rows of dout with one token, from a place in the order on. */
struct ordered {
	const int32_t *order;

	__device__ __forceinline__ int64_t operator()(int i) const { return order[i]; }
};

/* A warp whose place in the order is the first of its token adds all its rows. */
template <typename E, bool VECTOR>
__global__ void __launch_bounds__(32 * WARPS)
add_tokens(float *dwte, const E *dout, const int32_t *tokens, const int32_t *order, int n, int c)
{
	int first = warp_row(), at = tile_column<E>();
	if (first >= n) return;
	int token = tokens[order[first]], many = 0;
	if (first > 0 && tokens[order[first - 1]] == token) return;
	for (unsigned same = 0xffffffff; same == 0xffffffff; many += __popc(same)) {
		int place = first + many + threadIdx.x;
		same = __ballot_sync(0xffffffff, place < n && tokens[order[place < n ? place : first]] == token);
	}
	if (at < c) add_rows<VECTOR>(dwte + static_cast<int64_t>(token) * c, dout, ordered{order + first}, many, at, c);
}

template <typename E>
int32_t run_forward(void *stream, void *out, const int32_t *tokens, const void *wte, const void *wpe, int n, int t,
	int c)
{
	auto kernel = rows_aligned<E>(c, out, wte, wpe) ? forward<E, true> : forward<E, false>;
	LAUNCH(kernel, row_tiles<E>(n, c), dim3(32, WARPS), 0, stream, static_cast<E *>(out), tokens,
		static_cast<const E *>(wte), static_cast<const E *>(wpe), n, t, c);
	return launched();
}

template <typename E>
int32_t run_backward(dynmo_cuda *k, void *stream, float *dwte, float *dwpe, const void *dout, const int32_t *tokens,
	int b, int t, int c)
{
	void *work;
	int n = b * t;
	if (int32_t status = workspace(k, n * sizeof(int32_t), &work)) return status;
	int32_t *order = static_cast<int32_t *>(work);
	const E *dy = static_cast<const E *>(dout);
	bool vector = rows_aligned<E>(c, dwte, dwpe, dout);
	dim3 threads(32, WARPS);
	auto add_to_dwpe = vector ? positions<E, true> : positions<E, false>;
	auto add_to_dwte = vector ? add_tokens<E, true> : add_tokens<E, false>;
	LAUNCH(add_to_dwpe, row_tiles<E>(t, c), threads, 0, stream, dwpe, dy, b, t, c);
	LAUNCH(sort_tokens, parts(n, WARPS), threads, 0, stream, order, tokens, n);
	LAUNCH(add_to_dwte, row_tiles<E>(n, c), threads, 0, stream, dwte, dy, tokens, order, n, c);
	return launched();
}

} // namespace

int32_t dynmo_cuda_embedding_forward(dynmo_cuda *k, void *stream, void *out, const int32_t *tokens, const void *wte,
	const void *wpe, int32_t b, int32_t t, int32_t c)
{
	if (b == 0 || t == 0 || c == 0) return 0;
	return BY_TYPE(k, run_forward, stream, out, tokens, wte, wpe, b * t, t, c);
}

int32_t dynmo_cuda_embedding_backward(dynmo_cuda *k, void *stream, float *dwte, float *dwpe, const void *dout,
	const int32_t *tokens, int32_t b, int32_t t, int32_t c)
{
	if (b == 0 || t == 0 || c == 0) return 0;
	return BY_TYPE(k, run_backward, k, stream, dwte, dwpe, dout, tokens, b, t, c);
}
