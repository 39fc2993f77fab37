/* out (n, outputs) = x·Wᵀ + bias from lists of values. A warp has the lists of G
 * groups and T tokens in each lane, T·G = 8: 32 sums in registers. 32 places of
 * a list go through shared memory, then every place costs, for 32·T tokens,
 *
 *	T loads of 4 bytes a lane      T cycles of the L1 path, 128 bytes a cycle
 *	its input and four values      1.25 of them
 *	4·T multiplications a lane     T cycles of 128 FMA lanes
 *	about 7.5 other instructions   with those, T + 1.9 of issue slots, four a cycle
 *
 * 9.3 and 9.9 cycles for T = 8: both limits are near, and neither can be had without
 * the other. By this count a multiprocessor makes at most 55, 38 and 30 useful
 * multiplications a cycle with 50, 25 and 10 % kept, out of 128. One list for
 * every output would make at most 28.
 *
 * A block's 32 warps read the same tile of tokens in the same order, so that the
 * first of them to come to an input brings it into the L1 cache for the others:
 * it waits for the L2 cache and falls behind, which keeps them together. The L2
 * cache gives n·inputs·outputs·sizeof(E)/(128·G) bytes of x, and the lists again
 * for every tile. Where lists are short (few), x would take longer than the
 * arithmetic: then G = 2 halves it.
 *
 * A sum has the order of the inputs. The slots that hold nothing add zeros,
 * which change no bit of it, so that groups, tiles and G are of no consequence:
 * but 0·∞ is not a number, as in a dense product. */
#include "sparse.cuh"

namespace {

const int WARPS = 32; /* all that a multiprocessor has registers for */

/* Four places of a list: their inputs' first packs among those of x, and values. */
struct list_places {
	uint4 at;
	float4 values[4];
};

/* Loads 32 places of a list, or as many as there are, for the warp's lanes. The
 * packs of an input are TILE/N, those of the tile begin at tile. */
template <typename E, int T>
__device__ __forceinline__ void load_places(list_places *places, const sparse_lists &w, int64_t from, int count,
	uint32_t tile, int lane)
{
	__syncwarp();
	if (lane < count) {
		uint32_t at = tile + w.input[from + lane] * (tile_tokens<T> / width<E>);
		reinterpret_cast<uint32_t *>(&places[lane / 4].at)[lane % 4] = at;
		places[lane / 4].values[lane % 4] = static_cast<const float4 *>(w.slots)[from + lane];
	}
	__syncwarp();
}

/* sum += values·x for a place. */
template <typename E, int T>
__device__ __forceinline__ void add_place(float (&sum)[GROUP][T], const pack<E> *x, const float4 &values)
{
	lane_tokens<E, T> part;
	part.load(x);
#pragma unroll
	for (int t = 0; t < T; t++) {
		sum[0][t] = fmaf(values.x, part.x[t], sum[0][t]);
		sum[1][t] = fmaf(values.y, part.x[t], sum[1][t]);
		sum[2][t] = fmaf(values.z, part.x[t], sum[2][t]);
		sum[3][t] = fmaf(values.w, part.x[t], sum[3][t]);
	}
}

template <typename E, int T>
__device__ __forceinline__ void add_places(float (&sum)[GROUP][T], const pack<E> *x, const list_places *places,
	const list_places *end, int lane)
{
#pragma unroll 1
	for (; places < end; places++) {
		uint4 at = places->at;
		add_place<E, T>(sum, x + (at.x + lane), places->values[0]);
		add_place<E, T>(sum, x + (at.y + lane), places->values[1]);
		add_place<E, T>(sum, x + (at.z + lane), places->values[2]);
		add_place<E, T>(sum, x + (at.w + lane), places->values[3]);
	}
}

/* Writes a group's sums for the block's tile. */
template <bool VECTOR, typename E, int T>
__device__ __forceinline__ void write_sums(E *out, const float (&sum)[GROUP][T], const E *bias, int output, int outputs,
	int n, int lane)
{
	pack<E, GROUP> add = {};
	if (bias) add = read<false, GROUP>(bias, output, outputs);
#pragma unroll
	for (int t = 0; t < T; t++) {
		float part[GROUP];
#pragma unroll
		for (int r = 0; r < GROUP; r++)
			part[r] = bias ? sum[r][t] + add[r] : sum[r][t];
		int at = blockIdx.x * tile_tokens<T> + lane_tokens<E, T>::at(t, lane);
		if (at < n) write<VECTOR>(out + static_cast<int64_t>(at) * outputs, output, outputs, pack<E, GROUP>::of(part));
	}
}

template <bool VECTOR, typename E, int T, int G>
__global__ void __launch_bounds__(32 * WARPS, 1)
multiply(E *out, const pack<E> *tiles, sparse_lists w, const E *bias, int n)
{
	SHARED(list_places, shared_places, [WARPS][32 / 4]);
	int lane = threadIdx.x, warp = threadIdx.y;
	list_places *places = shared_places[warp];
	uint32_t tile = blockIdx.x * static_cast<uint32_t>(w.inputs) * (tile_tokens<T> / width<E>);
	float sum[G][GROUP][T] = {};
	int group[G], length[G], longest = 0;
#pragma unroll
	for (int g = 0; g < G; g++) {
		group[g] = listed_group(w, (blockIdx.y * WARPS + warp) * G + g);
		length[g] = group[g] < w.groups ? w.length[group[g]] : 0;
		longest = max(longest, length[g]);
	}
	for (int first = 0; first < longest; first += 32)
#pragma unroll
		for (int g = 0; g < G; g++)
			if (first < length[g]) {
				int count = min(32, length[g] - first);
				load_places<E, T>(places, w, group[g] * w.stride + first, count, tile, lane);
				add_places<E, T>(sum[g], tiles, places, places + count / 4, lane);
			}
#pragma unroll
	for (int g = 0; g < G; g++)
		if (group[g] < w.groups)
			write_sums<VECTOR, E, T>(out, sum[g], bias, group[g] * GROUP, w.outputs, n, lane);
}

template <typename E, int T, int G>
int32_t run(void *stream, E *out, const E *tiles, const sparse_lists &w, const E *bias, int32_t n)
{
	dim3 grid(parts(n, tile_tokens<T>), parts(w.strips * STRIP, WARPS * G)), block(32, WARPS);
	const pack<E> *x = reinterpret_cast<const pack<E> *>(tiles);
	bool whole = w.outputs % GROUP == 0 && reinterpret_cast<uintptr_t>(out) % (GROUP * sizeof(E)) == 0;
	if (whole)
		LAUNCH((multiply<true, E, T, G>), grid, block, 0, stream, out, x, w, bias, n);
	else
		LAUNCH((multiply<false, E, T, G>), grid, block, 0, stream, out, x, w, bias, n);
	return launched();
}

} // namespace

template <>
int32_t sparse_multiply<float>(void *stream, float *out, const float *tiles, const sparse_lists &w, const float *bias,
	int32_t n, int few)
{
	return few ? run<float, 4, 2>(stream, out, tiles, w, bias, n) : run<float, 8, 1>(stream, out, tiles, w, bias, n);
}

template <>
int32_t sparse_multiply<bf16>(void *stream, bf16 *out, const bf16 *tiles, const sparse_lists &w, const bf16 *bias,
	int32_t n, int)
{
	return run<bf16, 8, 1>(stream, out, tiles, w, bias, n);
}
