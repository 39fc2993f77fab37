/* Attention forward on Hopper's tensor cores: the equations of attention_forward.cu, by
 * other instructions. A block has 128 queries of a head. One warp has the copy engine
 * bring tiles of 128 keys and values, two ahead; two groups of four warps multiply, 64
 * queries each, straight from shared memory, so that one group's products run beside the
 * other's exponentials.
 *
 * Estimated for a tile of a group at head size 128, of clocks of an H100's processor: two
 * products of 64 x 128 x 128 at 2048 multiply-adds a clock are 1024, 64 x 128 exponentials
 * at 16 a clock 512, and what products read of shared memory, 128 KB at 128 bytes a
 * clock, 1024. Two groups then keep the tensor cores busy, where mma.sync, which reads
 * operands by instructions of its own, reaches about two thirds of their rate (Dao
 * 2023; Shah et al. 2024). None of it is measured. */
#include "attention_hopper.cuh"
#include "attention_softmax.cuh"

namespace {

template <int HS> struct forward_memory {
	head_panels<HS, HOPPER_ROWS> q, k[HOPPER_STAGES], v[HOPPER_STAGES];
	uint64_t q_full, k_full[HOPPER_STAGES], v_full[HOPPER_STAGES], k_free[HOPPER_STAGES], v_free[HOPPER_STAGES];
};

template <int HS> __device__ __forceinline__ void open_barriers(forward_memory<HS> &memory) {
	barrier_open(&memory.q_full, 1);
	for (int i = 0; i < HOPPER_STAGES; i++) {
		barrier_open(&memory.k_full[i], 1);
		barrier_open(&memory.v_full[i], 1);
		barrier_open(&memory.k_free[i], HOPPER_GROUPS * 4);
		barrier_open(&memory.v_free[i], HOPPER_GROUPS * 4);
	}
	barriers_opened();
}

/* Loads queries from row `first` of the head on, and keys and values up to row end. */
template <int HS>
__device__ __forceinline__ void load(forward_memory<HS> &memory, const tensor_map &qkv, attention_shape s,
	attention_head h, int first, int end) {
	int keys = s.c + h.number / s.share * HS, values = keys + s.keys;
	memory.q.load(qkv, h.number * HS, h.first + first, &memory.q_full);
	for (int key = 0, tile = 0; key < end; key += HOPPER_ROWS, tile++) {
		int stage = tile % HOPPER_STAGES, parity = tile / HOPPER_STAGES % 2;
		barrier_wait(&memory.k_free[stage], parity ^ 1);
		memory.k[stage].load(qkv, keys, h.first + key, &memory.k_full[stage]);
		barrier_wait(&memory.v_free[stage], parity ^ 1);
		memory.v[stage].load(qkv, values, h.first + key, &memory.v_full[stage]);
	}
}

/* A lane's part of its group's 64 queries. */
template <int HS> struct query_group {
	float o[HS / 8][4], largest[2], sum[2];
};

/* s = q·kᵀ, of the group's queries from row on. */
template <int HS>
__device__ __forceinline__ void scores(float (&s)[HOPPER_ROWS / 8][4], const head_panels<HS, HOPPER_ROWS> &q, int row,
	const head_panels<HS, HOPPER_ROWS> &k) {
	settle(s);
	products_begin();
#pragma unroll
	for (int i = 0; i < HS / 16; i++)
		multiply<HOPPER_ROWS, 0, 0>(s, q.by_channels(row, i), k.by_channels(0, i), i > 0);
	products_commit();
	products_wait<0>();
	settle(s);
}

/* o += p·v. */
template <int HS>
__device__ __forceinline__ void weigh(float (&o)[HS / 8][4], const uint32_t (&p)[HOPPER_ROWS / 16][4],
	const head_panels<HS, HOPPER_ROWS> &v) {
	settle(o);
	products_begin();
#pragma unroll
	for (int i = 0; i < HOPPER_ROWS / 16; i++) multiply<HS, 1>(o, p[i], v.by_rows(16 * i, 0), true);
	products_commit();
	products_wait<0>();
	settle(o);
}

/* All tiles up to row end for the group's queries, from row on of the block's, which begin with first. */
template <int HS>
__device__ __forceinline__ void attend(query_group<HS> &r, forward_memory<HS> &memory, int row, int first, int end,
	float scale2) {
	int query = first + row + threadIdx.x % GROUP_THREADS / 32 * 16; /* of the warp */
	barrier_wait(&memory.q_full, 0);
	for (int key = 0, tile = 0; key < end; key += HOPPER_ROWS, tile++) {
		int stage = tile % HOPPER_STAGES, parity = tile / HOPPER_STAGES % 2;
		float s[HOPPER_ROWS / 8][4];
		uint32_t p[HOPPER_ROWS / 16][4];
		barrier_wait(&memory.k_full[stage], parity);
		scores(s, memory.q, row, memory.k[stage]);
		warp_arrives(&memory.k_free[stage]);
		if (key == first) mask_future(s, query, key); /* the last tile */
		softmax(s, r.o, r.largest, r.sum, scale2);
		pack_operands(p, s);
		barrier_wait(&memory.v_full[stage], parity);
		weigh(r.o, p, memory.v[stage]);
		warp_arrives(&memory.v_free[stage]);
	}
}

/* Writes out = o/sum, and lse. */
template <int HS>
__device__ __forceinline__ void finish(query_group<HS> &r, head_panels<HS, HOPPER_ROWS> &panels, int row,
	head_rows<bf16> out, float *lse, int first, int t) {
	row += threadIdx.x % GROUP_THREADS / 32 * 16; /* of the warp */
	float inverse[2];
#pragma unroll
	for (int half = 0; half < 2; half++) {
		float sum = quad_sum(r.sum[half]);
		int query = first + row + 8 * half + threadIdx.x % 32 / 4;
		inverse[half] = 1 / sum;
		if (threadIdx.x % 4 == 0 && query < t) lse[query] = r.largest[half] * LN_2 + logf(sum);
	}
	store_rows(out, panels, row, r.o, first + row, t, inverse);
}

/* Grid (b·nh, tiles of queries); those with most keys start first. */
template <int HS>
__global__ void __launch_bounds__(HOPPER_THREADS, 1) attention_forward(const __grid_constant__ tensor_map qkv,
	bf16 *out, float *lse, attention_shape s) {
	DYNAMIC_SHARED(unsigned char, shared);
	forward_memory<HS> &memory = at_panel<forward_memory<HS>>(shared);
	attention_head h(s, blockIdx.x);
	int first = (gridDim.y - 1 - blockIdx.y) * HOPPER_ROWS, end = min(first + HOPPER_ROWS, h.t);
	if (first >= end) return;
	if (threadIdx.x == 0) open_barriers(memory);
	__syncthreads();
	int group = my_group();
	if (group == HOPPER_GROUPS) {
		give_registers<LOADING>();
		if (threadIdx.x % GROUP_THREADS == 0) load(memory, qkv, s, h, first, end);
		return;
	}
	take_registers<MULTIPLYING>();
	query_group<HS> r;
	clear(r.o);
	r.largest[0] = r.largest[1] = -INFINITY;
	r.sum[0] = r.sum[1] = 0;
	attend(r, memory, 64 * group, first, end, s.scale * LOG2_E);
	threads_meet(1 + group, GROUP_THREADS); /* no warp's product reads the group's queries any more; products hold warps together, so that no order of threads shows it */
	finish(r, memory.q, 64 * group, rows_of(out, s, h), lse + h.sums(s), first, h.t);
}

template <int HS>
int32_t forward(void *stream, bf16 *out, float *lse, const bf16 *qkv, attention_shape s, int n) {
	constexpr size_t BYTES = shared_bytes<forward_memory<HS>>;
	tensor_map map;
	int32_t status = tensor_map_of(&map, qkv, n, s.c + 2 * s.keys, HOPPER_ROWS);
	if (status == 0) status = allow_shared(attention_forward<HS>, BYTES);
	if (status != 0) return status;
	dim3 grid(s.b * s.nh, (s.t + HOPPER_ROWS - 1) / HOPPER_ROWS);
	LAUNCH(attention_forward<HS>, grid, HOPPER_THREADS, BYTES, stream, map, out, lse, s);
	return launched();
}

} // namespace

int32_t attention_hopper_forward(void *stream, bf16 *out, float *lse, const bf16 *qkv, attention_shape s, int n) {
	return s.hs == 64 ? forward<64>(stream, out, lse, qkv, s, n) : forward<128>(stream, out, lse, qkv, s, n);
}
