/* Declarations that the files of attention on Hopper's tensor cores share. */
#ifndef DYNMO_ATTENTION_HOPPER_CUH
#define DYNMO_ATTENTION_HOPPER_CUH

#include "attention.cuh"
#include "hopper.cuh"

/* bfloat16, head sizes 64 and 128, operands aligned to 16 bytes, on a GPU of compute
 * capability 9.0. n tokens; qkv is as kernel.go's AttentionForward has it. */
int32_t attention_hopper_forward(void *stream, bf16 *out, float *lse, const bf16 *qkv, attention_shape s, int n,
	int processors);
int32_t attention_hopper_backward(void *stream, bf16 *dqkv, const bf16 *dout, const bf16 *qkv, const query_stats *stats,
	void *work, attention_shape s, int n);

/* Bytes that the backward pass wants at work. */
size_t attention_hopper_bytes(attention_shape s, int n);

constexpr int HOPPER_ROWS = 128;   /* queries or keys of a block */
constexpr int HOPPER_GROUPS = 2;   /* groups that multiply, 64 rows each */
constexpr int HOPPER_THREADS = (HOPPER_GROUPS + 1) * GROUP_THREADS; /* the groups, and four warps whose first one loads */
constexpr int LOADING = 40, MULTIPLYING = 232; /* registers of a thread, of 65536 / HOPPER_THREADS at first */
constexpr int HOPPER_STAGES = 2;   /* tiles that are loaded ahead */

/* ROWS rows of a head in shared memory: its channels 64 a panel. */
template <int HS, int ROWS> struct alignas(1024) head_panels {
	static constexpr int BYTES = HS * ROWS * 2, NEXT = ROWS * PANEL * 2; /* all; from panel to panel */
	bf16 panel[HS / PANEL][ROWS][PANEL];

	/* Begins to copy rows [row, row + ROWS) of the map's matrix, from this channel on. */
	__device__ __forceinline__ void load(const tensor_map &map, int channel, int row, uint64_t *barrier) {
		barrier_expect(barrier, BYTES);
#pragma unroll
		for (int i = 0; i < HS / PANEL; i++) copy_box(panel[i], map, channel + PANEL * i, row, barrier);
	}
	/* Rows from row on as operand whose 16 are channels, from channel 16·k on. */
	__device__ __forceinline__ uint64_t by_channels(int row, int k) const {
		return matrix_of(&panel[k / 4][row][k % 4 * 16], 0);
	}
	/* Rows [row, row + 16), transposed: these are the 16, and all channels from channel on the width. */
	__device__ __forceinline__ uint64_t by_rows(int row, int channel) const {
		return matrix_of(&panel[channel / PANEL][row][channel % PANEL], NEXT);
	}
};

/* The dynamic shared memory of a block, from where panels may begin; a launch asks for
 * shared_bytes of it. */
template <typename T> __device__ __forceinline__ T &at_panel(unsigned char *shared) {
	return *reinterpret_cast<T *>(shared + (1024 - shared_address(shared) % 1024) % 1024);
}
template <typename T> constexpr size_t shared_bytes = sizeof(T) + 1024;

/* Writes d·factor, 16 rows of a warp, to rows [first, first + 16) of m, as far as there
 * are t, 16 bytes a lane; factor[0] is that of the upper 8 rows. They go through rows
 * [row, row + 16) of panels that no product or copy uses any more. */
template <int HS, int ROWS>
__device__ __forceinline__ void store_rows(head_rows<bf16> m, head_panels<HS, ROWS> &panels, int row,
	const float (&d)[HS / 8][4], int first, int t, const float (&factor)[2]) {
	int lane = threadIdx.x % 32, g = lane / 4, pair = lane % 4 * 2;
#pragma unroll
	for (int half = 0; half < 2; half++)
#pragma unroll
		for (int n = 0; n < HS / 8; n++)
			*reinterpret_cast<uint32_t *>(&panels.panel[n / 8][row + g + 8 * half][(n % 8 ^ g) * 8 + pair]) =
				pack_bf16(d[n][2 * half] * factor[half], d[n][2 * half + 1] * factor[half]);
	__syncwarp();
#pragma unroll
	for (int i = 0; i < HS / 16; i++) {
		int panel = i / 4, r = i % 4 * 4 + lane / 8, chunk = lane % 8;
		if (first + r < t)
			*reinterpret_cast<uint4 *>(m.row(first + r) + PANEL * panel + 8 * chunk) =
				*reinterpret_cast<const uint4 *>(&panels.panel[panel][row + r][(chunk ^ r % 8) * 8]);
	}
}

/* The A operands of 16 columns each of N/2 pairs of neighbouring D. */
template <int N> __device__ __forceinline__ void pack_operands(uint32_t (&a)[N / 2][4], const float (&d)[N][4]) {
#pragma unroll
	for (int k = 0; k < N / 2; k++) {
		a[k][0] = pack_bf16(d[2 * k][0], d[2 * k][1]);
		a[k][1] = pack_bf16(d[2 * k][2], d[2 * k][3]);
		a[k][2] = pack_bf16(d[2 * k + 1][0], d[2 * k + 1][1]);
		a[k][3] = pack_bf16(d[2 * k + 1][2], d[2 * k + 1][3]);
	}
}

/* How often a warp arrives at a barrier. racecheck counts what a lane did as done only when this
 * lane itself has arrived. So kernels for racecheck are compiled with DYNMO_LANES_ARRIVE. */
#ifdef DYNMO_LANES_ARRIVE
constexpr int WARP_ARRIVALS = 32;
#else
constexpr int WARP_ARRIVALS = 1;
#endif

/* One lane of a warp tells a barrier that all of them are done. */
__device__ __forceinline__ void warp_arrives(uint64_t *barrier) {
	__syncwarp(); /* orders memory; products hold lanes together, so that no order of threads shows it */
	if (threadIdx.x % 32 < WARP_ARRIVALS) barrier_arrive(barrier);
}

#endif
