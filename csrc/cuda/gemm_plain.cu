/* Dense products of our own, for shapes and alignments that cuBLASLt refuses:
 * odd and small ones, so no tensor cores and no vector loads. 2·m·n·k operations
 * in float. A block of 256 threads makes a tile of 64x64 results, 16 of each
 * thread; it goes through k in steps of 16, for which it keeps both operands'
 * tiles in shared memory, read along the direction that is contiguous. A result's
 * sum is in ascending order of k, whatever m and n are. */
#include "products.cuh"

namespace {

enum { TILE = 64, DEPTH = 16, THREADS = 256, SIDE = TILE / 16 };

/* A matrix of `sides` vectors of `depth` elements each. */
template <typename E> struct operand {
	const E *x;
	int64_t side_stride, depth_stride;
	int32_t sides, depth;
};

/* fill reads the tile of x that begins at vector side and element depth; what is
 * outside of x is 0. */
template <typename E>
__device__ __forceinline__ void fill(float (*tile)[TILE + 1], const operand<E> &x, int64_t side, int32_t depth) {
	for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
		int s = x.depth_stride == 1 ? i / DEPTH : i % TILE;
		int d = x.depth_stride == 1 ? i % DEPTH : i / TILE;
		bool inside = side + s < x.sides && depth + d < x.depth;
		tile[d][s] = inside ? wide(x.x[(side + s) * x.side_stride + (depth + d) * x.depth_stride]) : 0.0f;
	}
}

__device__ __forceinline__ float gelu_tanh(float x) {
	return tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
}

/* finish stores the result whose sum over k is x, at (i, j) of D. */
template <typename E, typename D>
__device__ __forceinline__ void finish(const product &p, int64_t i, int64_t j, float x) {
	int64_t at = i + j * p.m;
	if (p.bias) x += wide(static_cast<const E *>(p.bias)[i]);
	if (p.add) x += wide(static_cast<const D *>(p.add)[at]);
	E *aux = static_cast<E *>(p.aux);
	if (p.activation == ACTIVATION_GELU) {
		aux[at] = narrow<E>(x);
		x = 0.5f * x * (1 + gelu_tanh(x));
	} else if (p.activation == ACTIVATION_DGELU) {
		float y = wide(aux[at]), t = gelu_tanh(y);
		float slope = 0.7978845608f * (1 + 3 * 0.044715f * y * y);
		x *= 0.5f * (1 + t) + 0.5f * y * (1 - t * t) * slope;
	}
	static_cast<D *>(p.d)[at] = narrow<D>(x);
}

/* Grid (m, n) in tiles. Thread t has rows t%16 + 16r and columns t/16 + 16c of the
 * tile, so that neighbours store neighbours. */
template <typename E, typename D>
__global__ void __launch_bounds__(THREADS) multiply(product p, operand<E> a, operand<E> b) {
	SHARED(float, ta, [DEPTH][TILE + 1]);
	SHARED(float, tb, [DEPTH][TILE + 1]);
	int64_t row = static_cast<int64_t>(blockIdx.x) * TILE, column = static_cast<int64_t>(blockIdx.y) * TILE;
	int i = threadIdx.x % 16, j = threadIdx.x / 16;
	float sum[SIDE][SIDE] = {};
	for (int32_t depth = 0; depth < p.k; depth += DEPTH) {
		fill(ta, a, row, depth);
		fill(tb, b, column, depth);
		__syncthreads();
		for (int d = 0; d < DEPTH; d++)
#pragma unroll
			for (int r = 0; r < SIDE; r++)
#pragma unroll
				for (int c = 0; c < SIDE; c++) sum[r][c] = fmaf(ta[d][i + 16 * r], tb[d][j + 16 * c], sum[r][c]);
		__syncthreads();
	}
#pragma unroll
	for (int r = 0; r < SIDE; r++)
#pragma unroll
		for (int c = 0; c < SIDE; c++)
			if (row + i + 16 * r < p.m && column + j + 16 * c < p.n)
				finish<E, D>(p, row + i + 16 * r, column + j + 16 * c, sum[r][c]);
}

template <typename E, typename D> int32_t launch(void *stream, const product *p) {
	operand<E> a = {static_cast<const E *>(p->a), 1, p->m, p->m, p->k};
	operand<E> b = {static_cast<const E *>(p->b), p->k, 1, p->n, p->k};
	if (p->transpose_a) a.side_stride = p->k, a.depth_stride = 1;
	if (p->transpose_b) b.side_stride = 1, b.depth_stride = p->n;
	dim3 grid((p->m + TILE - 1) / TILE, (p->n + TILE - 1) / TILE);
	LAUNCH((multiply<E, D>), grid, THREADS, 0, stream, *p, a, b);
	return launched();
}

} // namespace

int32_t plain_product(const dynmo_cuda *k, void *stream, const product *p) {
	if (k->type == DYNMO_CUDA_F32) return launch<float, float>(stream, p);
	return p->wide ? launch<bf16, float>(stream, p) : launch<bf16, bf16>(stream, p);
}
