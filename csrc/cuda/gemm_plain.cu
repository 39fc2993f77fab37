/* Dense products of our own, for shapes and alignments that cuBLASLt refuses: odd and small
 * ones, so no tensor cores and no vector loads. 2·m·n·k operations in float. */
#include "products.cuh"

#include "plain_tile.cuh"

namespace {

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

/* Grid (m, n) in tiles. */
template <typename E, typename D>
__global__ void __launch_bounds__(PLAIN_THREADS) multiply(product p, plain_operand<E> a, plain_operand<E> b) {
	SHARED(plain_tiles, tiles, );
	int64_t row = static_cast<int64_t>(blockIdx.x) * PLAIN_TILE, column = static_cast<int64_t>(blockIdx.y) * PLAIN_TILE;
	float sum[PLAIN_SIDE][PLAIN_SIDE] = {};
	plain_multiply(sum, tiles, a, b, row, column);
#pragma unroll
	for (int r = 0; r < PLAIN_SIDE; r++)
#pragma unroll
		for (int c = 0; c < PLAIN_SIDE; c++) {
			int64_t i = row + plain_row(r), j = column + plain_column(c);
			if (i < p.m && j < p.n) finish<E, D>(p, i, j, sum[r][c]);
		}
}

template <typename E, typename D> int32_t launch(void *stream, const product *p) {
	plain_operand<E> a = {static_cast<const E *>(p->a), 1, p->m, p->m, p->k};
	plain_operand<E> b = {static_cast<const E *>(p->b), p->k, 1, p->n, p->k};
	if (p->transpose_a) a.side_stride = p->k, a.depth_stride = 1;
	if (p->transpose_b) b.side_stride = 1, b.depth_stride = p->n;
	dim3 grid((p->m + PLAIN_TILE - 1) / PLAIN_TILE, (p->n + PLAIN_TILE - 1) / PLAIN_TILE);
	LAUNCH((multiply<E, D>), grid, PLAIN_THREADS, 0, stream, *p, a, b);
	return launched();
}

} // namespace

int32_t plain_product(const dynmo_cuda *k, void *stream, const product *p) {
	if (k->type == DYNMO_CUDA_F32) return launch<float, float>(stream, p);
	return p->wide ? launch<bf16, float>(stream, p) : launch<bf16, bf16>(stream, p);
}
