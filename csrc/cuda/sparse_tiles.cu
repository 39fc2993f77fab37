/* Activations by tiles of tokens: a transposition through shared memory, of
 * 2·n·c elements of traffic. */
#include "sparse.cuh"

namespace {

const int SIDE = 64, WARPS = 8; /* 16 elements for each thread, all loaded at once */

/* A block moves SIDE tokens of SIDE channels. SIDE divides tokens. */
template <typename E>
__global__ void __launch_bounds__(32 * WARPS) tile_block(E *tiles, const E *x, int n, int c, int tokens)
{
	SHARED(E, square, [SIDE][SIDE + 4 / sizeof(E)]); /* columns too have each token in a bank of its own */
	int lane = threadIdx.x, warp = threadIdx.y, channel = blockIdx.x * SIDE, token = blockIdx.y * SIDE;
#pragma unroll
	for (int j = 0; j < SIDE; j += WARPS)
#pragma unroll
		for (int i = lane; i < lane + SIDE; i += 32) {
			bool inside = token + warp + j < n && channel + i < c;
			square[warp + j][i] = inside ? x[static_cast<int64_t>(token + warp + j) * c + channel + i] : narrow<E>(0);
		}
	__syncthreads();
	E *tile = tiles + static_cast<int64_t>(token / tokens) * c * tokens + token % tokens;
#pragma unroll
	for (int i = 0; i < SIDE; i += WARPS)
#pragma unroll
		for (int j = lane; j < lane + SIDE; j += 32)
			if (channel + warp + i < c) tile[static_cast<int64_t>(channel + warp + i) * tokens + j] = square[j][warp + i];
}

} // namespace

template <typename E> int32_t tile_rows(void *stream, E *tiles, const E *x, int32_t n, int32_t c, int32_t tokens)
{
	if (n == 0 || c == 0) return 0;
	dim3 grid(parts(c, SIDE), parts(n, tokens) * (tokens / SIDE));
	LAUNCH(tile_block<E>, grid, dim3(32, WARPS), 0, stream, tiles, x, n, c, tokens);
	return launched();
}

template int32_t tile_rows<float>(void *, float *, const float *, int32_t, int32_t, int32_t);
template int32_t tile_rows<bf16>(void *, bf16 *, const bf16 *, int32_t, int32_t, int32_t);
