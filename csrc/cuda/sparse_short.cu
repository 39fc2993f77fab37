/* out (n, outputs) = x·Wᵀ + bias in float from short lists. A block has 64 tokens and 512
 * outputs, a warp 16 outputs, a lane two tokens: 32 sums in registers. Chunks of 256 inputs
 * of x go through two buffers in shared memory. A row there has one column more, so that 32
 * tokens of an input are in 32 banks. A warp loads its lists 32 pairs ahead into registers
 * and from there writes them to shared memory. A pair of entries costs a warp
 *
 *	its inputs and values    1.25 cycles of shared memory, 128 bytes a cycle
 *	x, four loads of a lane  4 cycles of shared memory
 *	15 instructions          3.75 issue cycles, and about 2.5 more for each list
 *
 * Lists of four outputs would read x less often, but with 2 % kept they hold zeros in 74 %
 * of the slots.
 *
 * A sum takes inputs in order. The zeros that fill up lists change no bit of the sum, except
 * that 0·∞ is not a number, as in a dense product. */
#include "mma.cuh"
#include "sparse.cuh"

namespace {

const int WARPS = 32, TOKENS = 64, ROW = CHUNK_INPUTS + 1, PAIRS = 32;
static_assert(WARP_OUTPUTS == 16, "uint4 has the lengths");

/* The lists of a group, read pair by pair. Registers are short: what is seldom needed is
 * computed again. */
struct list_reader {
	const uint4 *lists; /* of all groups */
	uint4 *pairs;       /* shared, of the block: a warp has PAIRS of them, up to limit */
	int limit, at;      /* at: the warp's next pair, or limit */
	int from;           /* the lane's pair after ahead */
	uint4 ahead;

	__device__ __forceinline__ list_reader(uint4 *shared, const uint4 *all, int base)
		: lists(all), pairs(shared), limit(threadIdx.x / 32 * PAIRS + PAIRS), at(limit), from(base + threadIdx.x % 32)
	{
		read();
	}

	__device__ __forceinline__ void read()
	{
		ahead = lists[from];
		from += PAIRS;
	}

	__device__ __forceinline__ void refill()
	{
		__syncwarp();
		pairs[thread_again()] = ahead;
		__syncwarp();
		read();
		at = limit - PAIRS;
	}

	/* Adds the products of the next list, of count pairs, for the lane's tokens, which begin at x. */
	__device__ __forceinline__ void add(float (&sum)[2], const char *x, int count)
	{
		for (;;) {
			int end = min(at + count, limit);
			count -= end - at;
#pragma unroll 1
			for (; at < end; at++) {
				uint4 pair = pairs[at];
				const float *one = reinterpret_cast<const float *>(x + pair.x);
				const float *two = reinterpret_cast<const float *>(x + pair.z);
				sum[0] = fmaf(__uint_as_float(pair.y), one[0], sum[0]);
				sum[1] = fmaf(__uint_as_float(pair.y), one[32 * ROW], sum[1]);
				sum[0] = fmaf(__uint_as_float(pair.w), two[0], sum[0]);
				sum[1] = fmaf(__uint_as_float(pair.w), two[32 * ROW], sum[1]);
			}
			if (count == 0) return;
			refill();
		}
	}
};

/* Begins to copy a chunk of x for the block's tokens. Rows after token n repeat the last one. */
__device__ __forceinline__ void copy_chunk(float *tile, const float *x, int first, int inputs, int n)
{
	int count = min(CHUNK_INPUTS, inputs - first), thread = thread_again(), lane = thread % 32;
#pragma unroll 1
	for (int row = thread / 32; row < TOKENS; row += WARPS) {
		int token = min(static_cast<int>(blockIdx.y) * TOKENS + row, n - 1);
		const float *from = x + (static_cast<int64_t>(token) * inputs + first + lane);
		float *to = tile + row * ROW + lane;
		if (count == CHUNK_INPUTS) {
#pragma unroll
			for (int c = 0; c < CHUNK_INPUTS; c += 32)
				cp_async_4(to + c, from + c, true);
		} else {
#pragma unroll 1
			for (int c = lane; c < count; c += 32, to += 32, from += 32)
				cp_async_4(to, from, true);
		}
	}
	cp_async_commit();
}

/* Writes the sums of a warp. */
template <bool VECTOR>
__device__ __forceinline__ void write_sums(float *out, const float (&sum)[WARP_OUTPUTS][2], const float *bias,
	int output, int outputs, int token, int n)
{
#pragma unroll
	for (int i = 0; i < WARP_OUTPUTS; i += 4) {
		pack<float> add = {};
		if (bias) add = read<false, 4>(bias, output + i, outputs);
#pragma unroll
		for (int t = 0; t < 2; t++) {
			float part[4];
#pragma unroll
			for (int j = 0; j < 4; j++)
				part[j] = bias ? sum[i + j][t] + add[j] : sum[i + j][t];
			int at = token + 32 * t;
			if (at < n)
				write<VECTOR>(out + static_cast<int64_t>(at) * outputs, output + i, outputs, pack<float>::of(part));
		}
	}
}

/* Grid (512 outputs, TOKENS tokens). */
template <bool VECTOR>
__global__ void __launch_bounds__(32 * WARPS, 1)
multiply(float *out, const float *x, short_lists w, const float *bias, int n)
{
	DYNAMIC_SHARED(uint4, pairs);
	float *tiles = reinterpret_cast<float *>(pairs + WARPS * PAIRS);
	int group = blockIdx.x * WARPS + threadIdx.x / 32;
	bool inside = group < w.groups;
	list_reader list(pairs, reinterpret_cast<const uint4 *>(w.entries), inside ? w.base[group] : 0);
	float sum[WARP_OUTPUTS][2] = {};
	for (int chunk = -1; chunk < w.chunks; chunk++) {
		cp_async_wait<0>();
		__syncthreads(); /* this chunk is there, and no thread reads the one before any more */
		if (chunk + 1 < w.chunks)
			copy_chunk(tiles + (chunk + 1) % 2 * (TOKENS * ROW), x, (chunk + 1) * CHUNK_INPUTS, w.inputs, n);
		if (chunk < 0 || !inside) continue;
		int thread = thread_again();
		group = block_again() * WARPS + thread / 32;
		const char *mine = reinterpret_cast<const char *>(tiles + chunk % 2 * (TOKENS * ROW) + thread % 32 * ROW);
		int lengths = (group * w.chunks + chunk) * (WARP_OUTPUTS / 4);
#pragma unroll
		for (int i = 0; i < WARP_OUTPUTS / 4; i++) {
			uint32_t four = reinterpret_cast<const uint32_t *>(w.length)[lengths + i];
#pragma unroll
			for (int j = 0; j < 4; j++)
				list.add(sum[4 * i + j], mine, four >> 8 * j & 255);
		}
	}
	if (inside)
		write_sums<VECTOR>(out, sum, bias, group * WARP_OUTPUTS, w.outputs, blockIdx.y * TOKENS + threadIdx.x % 32, n);
}

template <bool VECTOR>
int32_t run(void *stream, float *out, const float *x, const short_lists &w, const float *bias, int32_t n)
{
	if (int32_t status = allow_shared(multiply<VECTOR>, SHORT_SHARED)) return status;
	dim3 grid(parts(w.groups, WARPS), parts(n, TOKENS));
	LAUNCH(multiply<VECTOR>, grid, 32 * WARPS, SHORT_SHARED, stream, out, x, w, bias, n);
	return launched();
}

} // namespace

const int SHORT_SHARED = WARPS * PAIRS * sizeof(uint4) + 2 * TOKENS * ROW * sizeof(float);

int32_t short_multiply(void *stream, float *out, const float *x, const short_lists &w, const float *bias, int32_t n)
{
	bool whole = rows_aligned<float>(w.outputs, out);
	return whole ? run<true>(stream, out, x, w, bias, n) : run<false>(stream, out, x, w, bias, n);
}
