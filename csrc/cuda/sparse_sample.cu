/* dvalues += Σ_n dout·inp at the entries of lists. A warp has a group and a part
 * of its list. It goes through the tokens by tiles of 256, 8 tokens in each lane.
 * dout of the group's four outputs stays in registers for a tile. The inputs of
 * the list go by, eight at a time, and give 32 sums in each lane. The lanes
 * exchange sums until each lane has one sum over the warp: 31 shuffles instead of
 * 32 times 5.
 *
 * All numbers are for an input of the list and 256 tokens. Its loads cost 8 cycles
 * of the L1 path, and its share of the shuffles costs 4. Its 32 multiplications a lane and about 24
 * other instructions take 14 cycles of issue slots, four a cycle. With 25 and 10 %
 * kept, at most 27 and 21 of 128 multiplications a cycle are useful. The warps of
 * a block read the same tile in the same order, as in the product. The L2 cache
 * gives n·inputs·outputs·sizeof(E)/64 bytes of inp.
 *
 * A sum over tokens has the order: a lane's tokens of a tile, the lanes as a
 * tree, the tiles. An entry belongs to one warp. */
#include "sparse.cuh"

namespace {

const int WARPS = 16; /* 64 sums and operands, of 128 registers */
const int T = 8;
template <typename E> constexpr uint32_t CHANNEL = tile_tokens<T> / width<E>; /* packs of a tile's channel */

/* Lanes give each other half of their sums, then half of the rest, and so on. In the
 * end x[0] of lane l is the sum of x[l] over all lanes. */
template <int HALF> __device__ __forceinline__ void exchange_sums(float (&x)[32], int lane)
{
	bool upper = lane & HALF;
#pragma unroll
	for (int j = 0; j < HALF; j++) {
		float keep = upper ? x[j + HALF] : x[j], give = upper ? x[j] : x[j + HALF];
		x[j] = keep + __shfl_xor_sync(0xffffffff, give, HALF);
	}
	if constexpr (HALF > 1) exchange_sums<HALF / 2>(x, lane);
}

/* Writes to sum, for each of the group's outputs, this lane's part of Σ dout·x. */
template <typename E>
__device__ __forceinline__ void sample_place(float *sum, const lane_tokens<E, T> (&dout)[GROUP], const pack<E> *channel)
{
	lane_tokens<E, T> x;
	x.load(channel);
#pragma unroll
	for (int r = 0; r < GROUP; r++) {
		sum[r] = dout[r].x[0] * x.x[0];
#pragma unroll
		for (int t = 1; t < T; t++)
			sum[r] = fmaf(dout[r].x[t], x.x[t], sum[r]);
	}
}

/* Adds a tile's part at CHUNK places of a list, whose slots begin at entry: lane
 * l has place l/GROUP, output l%GROUP. The lane's packs of the tile begin at first. */
template <typename E>
__device__ __forceinline__ void sample_chunk(float *dvalues, const lane_tokens<E, T> (&dout)[GROUP],
	const pack<E> *inp, uint32_t first, const int32_t *input, const int32_t *entry, int lane)
{
	float sum[CHUNK * GROUP];
	int e = entry[lane];
#pragma unroll
	for (int p = 0; p < CHUNK; p += 4) {
		int4 at = *reinterpret_cast<const int4 *>(input + p);
		sample_place<E>(sum + p * GROUP, dout, inp + (first + at.x * CHANNEL<E>));
		sample_place<E>(sum + (p + 1) * GROUP, dout, inp + (first + at.y * CHANNEL<E>));
		sample_place<E>(sum + (p + 2) * GROUP, dout, inp + (first + at.z * CHANNEL<E>));
		sample_place<E>(sum + (p + 3) * GROUP, dout, inp + (first + at.w * CHANNEL<E>));
	}
	exchange_sums<16>(sum, lane);
	if (e >= 0) dvalues[e] += sum[0];
}

/* Part blockIdx.y of gridDim.y of the lists of a block's groups. dout and inp are
 * packs of tiles. */
template <typename E>
__global__ void __launch_bounds__(32 * WARPS, 1)
sample(float *dvalues, const pack<E> *dout, const pack<E> *inp, sparse_lists w, int tiles)
{
	int lane = threadIdx.x, group = listed_group(w, blockIdx.x * WARPS + threadIdx.y);
	if (group >= w.groups) return;
	int64_t chunks = w.length[group] / CHUNK, list = group * w.stride;
	int first = chunks * blockIdx.y / gridDim.y * CHUNK, last = chunks * (blockIdx.y + 1) / gridDim.y * CHUNK;
	for (int tile = 0; tile < tiles; tile++) {
		lane_tokens<E, T> mine[GROUP];
#pragma unroll
		for (int r = 0; r < GROUP; r++) {
			int output = min(group * GROUP + r, w.outputs - 1);
			mine[r].load(dout + ((tile * static_cast<uint32_t>(w.outputs) + output) * CHANNEL<E> + lane));
		}
		uint32_t x = tile * static_cast<uint32_t>(w.inputs) * CHANNEL<E> + lane;
		for (int at = first; at < last; at += CHUNK)
			sample_chunk<E>(dvalues, mine, inp, x, w.input + list + at,
				w.slots + (list + at) * GROUP, lane);
	}
}

} // namespace

template <typename E>
int32_t sparse_sample(void *stream, float *dvalues, const E *dout, const E *inp, const sparse_lists &w, int32_t n)
{
	int blocks = static_cast<int>(parts(w.strips * STRIP, WARPS));
	int64_t wanted = parts(512, blocks), most = parts(w.stride, 16 * CHUNK);
	dim3 grid(blocks, wanted < most ? wanted : most);
	LAUNCH(sample<E>, grid, dim3(32, WARPS), 0, stream, dvalues, reinterpret_cast<const pack<E> *>(dout),
		reinterpret_cast<const pack<E> *>(inp), w, static_cast<int>(parts(n, tile_tokens<T>)));
	return launched();
}

template int32_t sparse_sample<float>(void *, float *, const float *, const float *, const sparse_lists &, int32_t);
template int32_t sparse_sample<bf16>(void *, float *, const bf16 *, const bf16 *, const sparse_lists &, int32_t);
