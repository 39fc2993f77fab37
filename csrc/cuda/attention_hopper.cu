/* Attention forward on Hopper's tensor cores: the equations of attention_forward.cu, by
 * other instructions. A block works on 128 queries of a head, and then on others. If all
 * sequences are equally long, each multiprocessor has one block. Queries with the most keys
 * come first. Work is dealt to the blocks in rounds, forth and back. One thread orders the copy
 * engine to bring tiles of 128 keys and values, two ahead, also of the block's next work. Two
 * groups of four warps multiply, 64 queries each, straight from shared memory. The groups take
 * turns. In its turn a group begins the scores of its next tile and the product of its last
 * probabilities with the values. Exponentials run beside these products.
 *
 * Clocks of an H100's processor for a tile of a group at head size 128: two products of
 * 64 x 128 x 128 take 1024 at 2048 multiply-adds a clock. 64 x 128 exponentials take 512 at
 * 16 a clock. The products' reads of shared memory, 128 KB, take 1024 at 128 bytes a clock.
 * Measured are 2,400, and at head size 64 1,640, where exponentials alone take 512
 * (results/gpu-h100.txt, before rounds went back). Without turns, and with a block for each
 * 128 queries, it was 3 % more, and 9 % at head size 64. */
#include "attention_hopper.cuh"
#include "attention_softmax.cuh"

namespace {

template <int HS> struct forward_memory {
	head_panels<HS, HOPPER_ROWS> q, k[HOPPER_STAGES], v[HOPPER_STAGES], out;
	uint64_t q_full, q_free, k_full[HOPPER_STAGES], v_full[HOPPER_STAGES], k_free[HOPPER_STAGES], v_free[HOPPER_STAGES];
};

template <int HS> __device__ __forceinline__ void open_barriers(forward_memory<HS> &memory) {
	barrier_open(&memory.q_full, 1);
	barrier_open(&memory.q_free, HOPPER_GROUPS * 4 * WARP_ARRIVALS);
	for (int i = 0; i < HOPPER_STAGES; i++) {
		barrier_open(&memory.k_full[i], 1);
		barrier_open(&memory.v_full[i], 1);
		barrier_open(&memory.k_free[i], HOPPER_GROUPS * 4 * WARP_ARRIVALS);
		barrier_open(&memory.v_free[i], HOPPER_GROUPS * 4 * WARP_ARRIVALS);
	}
	barriers_opened();
}

/* 128 queries of a head. A block works on several, those with the most keys first. */
struct query_block {
	attention_head h;
	int first, end; /* queries, and the keys of the last one */

	__device__ __forceinline__ query_block(attention_shape s, int number)
		: h(s, number % (s.b * s.nh)),
		  first(((s.t + HOPPER_ROWS - 1) / HOPPER_ROWS - 1 - number / (s.b * s.nh)) * HOPPER_ROWS),
		  end(min(first + HOPPER_ROWS, h.t)) {}
	__device__ __forceinline__ bool exists() const { return first < end; } /* in its sequence */
};

__device__ __forceinline__ int query_blocks(attention_shape s) { return s.b * s.nh * ((s.t + HOPPER_ROWS - 1) / HOPPER_ROWS); }

/* The number of the block's work in a round. */
__device__ __forceinline__ int work_of(int round) {
	return round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

/* The place of a tile of keys among the buffers, and its parity there. */
__device__ __forceinline__ int stage_of(int tile) { return tile % HOPPER_STAGES; }
__device__ __forceinline__ int parity_of(int tile) { return tile / HOPPER_STAGES % 2; }

/* Loads queries, keys and values of all the block's work. */
template <int HS>
__device__ __forceinline__ void load(forward_memory<HS> &memory, const tensor_map &qkv, attention_shape s) {
	int tile = 0, done = 0;
	for (int round = 0; work_of(round) < query_blocks(s); round++) {
		query_block b(s, work_of(round));
		if (!b.exists()) continue;
		int keys = s.c + b.h.number / s.share * HS, values = keys + s.keys;
		for (int key = 0; key < b.end; key += HOPPER_ROWS, tile++) {
			int stage = stage_of(tile), parity = parity_of(tile);
			barrier_wait(&memory.k_free[stage], parity ^ 1);
			memory.k[stage].load(qkv, keys, b.h.first + key, &memory.k_full[stage]);
			if (key == 0) {
				barrier_wait(&memory.q_free, done++ % 2 ^ 1);
				memory.q.load(qkv, b.h.number * HS, b.h.first + b.first, &memory.q_full);
			}
			barrier_wait(&memory.v_free[stage], parity ^ 1);
			memory.v[stage].load(qkv, values, b.h.first + key, &memory.v_full[stage]);
		}
	}
}

/* A lane's part of its group's 64 queries. */
template <int HS> struct query_group {
	float o[HS / 8][4], largest[2], sum[2];
};

/* Begins s = q·kᵀ, of the group's queries from row on. */
template <int HS>
__device__ __forceinline__ void begin_scores(float (&s)[HOPPER_ROWS / 8][4], const head_panels<HS, HOPPER_ROWS> &q, int row,
	const head_panels<HS, HOPPER_ROWS> &k) {
	pin_registers(s);
	products_begin();
#pragma unroll
	for (int i = 0; i < HS / 16; i++)
		multiply<HOPPER_ROWS, 0, 0>(s, q.by_channels(row, i), k.by_channels(0, i), i > 0);
	products_commit();
}

/* Begins o += p·v. */
template <int HS>
__device__ __forceinline__ void begin_weighing(float (&o)[HS / 8][4], const uint32_t (&p)[HOPPER_ROWS / 16][4],
	const head_panels<HS, HOPPER_ROWS> &v) {
	pin_registers(o);
	products_begin();
#pragma unroll
	for (int i = 0; i < HOPPER_ROWS / 16; i++) multiply<HS, 1>(o, p[i], v.by_rows(16 * i, 0), true);
	products_commit();
}

/* Waits for o += p·v, and gives the values back. */
template <int HS> __device__ __forceinline__ void end_weighing(float (&o)[HS / 8][4], uint64_t *v_free) {
	products_wait<0>();
	pin_registers(o);
	warp_arrives(v_free);
}

/* Groups begin their products in turn: each waits for the other's before its own. */
__device__ __forceinline__ void wait_turn(int group) { threads_meet(1 + group, HOPPER_GROUPS * GROUP_THREADS); }
__device__ __forceinline__ void give_turn(int group) { threads_pass(2 - group, HOPPER_GROUPS * GROUP_THREADS); }

/* All tiles of keys for the group's queries, from row on of the block's. A tile's values are
 * weighed while the scores of the next turn into weights. tile counts the tiles of all work. */
template <int HS>
__device__ __forceinline__ void attend(query_group<HS> &r, forward_memory<HS> &memory, query_block b, int row, int &tile,
	int group, float scale2) {
	int query = b.first + row + threadIdx.x % GROUP_THREADS / 32 * 16; /* of the warp */
	float s[HOPPER_ROWS / 8][4], shrink[2];
	uint32_t p[HOPPER_ROWS / 16][4];
	barrier_wait(&memory.k_full[stage_of(tile)], parity_of(tile));
	wait_turn(group);
	begin_scores(s, memory.q, row, memory.k[stage_of(tile)]);
	give_turn(group);
	products_wait<0>();
	pin_registers(s);
	warp_arrives(&memory.k_free[stage_of(tile)]);
	if (b.end <= HOPPER_ROWS) warp_arrives(&memory.q_free);
	if (b.first == 0) mask_future(s, query, 0);
	softmax(s, shrink, r.largest, r.sum, scale2);
	pack_operands(p, s);
	shrink[0] = shrink[1] = 1;
	for (int key = HOPPER_ROWS; key < b.end; key += HOPPER_ROWS) {
		int next = tile + 1;
		barrier_wait(&memory.k_full[stage_of(next)], parity_of(next));
		barrier_wait(&memory.v_full[stage_of(tile)], parity_of(tile));
		pin_registers(p);
		wait_turn(group);
		begin_scores(s, memory.q, row, memory.k[stage_of(next)]);
		rescale(r.o, shrink);
		begin_weighing<HS>(r.o, p, memory.v[stage_of(tile)]);
		give_turn(group);
		products_wait<1>();
		pin_registers(s);
		warp_arrives(&memory.k_free[stage_of(next)]);
		if (key + HOPPER_ROWS >= b.end) warp_arrives(&memory.q_free);
		if (key == b.first) mask_future(s, query, key); /* the last tile */
		softmax(s, shrink, r.largest, r.sum, scale2);
		end_weighing<HS>(r.o, &memory.v_free[stage_of(tile)]);
		pack_operands(p, s);
		tile = next;
	}
	barrier_wait(&memory.v_full[stage_of(tile)], parity_of(tile));
	rescale(r.o, shrink);
	pin_registers(p);
	begin_weighing<HS>(r.o, p, memory.v[stage_of(tile)]);
	end_weighing<HS>(r.o, &memory.v_free[stage_of(tile)]);
	tile++;
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
	__syncwarp(); /* other lanes may still read this warp's rows of the work before; no order of threads shows it */
	store_rows(out, panels, row, r.o, first + row, t, inverse);
}

/* Grid: a block for each multiprocessor, or for each 128 queries of a head. */
template <int HS>
__global__ void __launch_bounds__(HOPPER_THREADS, 1) attention_forward(const __grid_constant__ tensor_map qkv,
	bf16 *out, float *lse, attention_shape s) {
	DYNAMIC_SHARED(unsigned char, shared);
	forward_memory<HS> &memory = at_panel<forward_memory<HS>>(shared);
	if (threadIdx.x == 0) open_barriers(memory);
	__syncthreads();
	int group = my_group();
	if (group == HOPPER_GROUPS) {
		give_registers<LOADING>();
		if (threadIdx.x % GROUP_THREADS == 0) load(memory, qkv, s);
		return;
	}
	take_registers<MULTIPLYING>();
	if (group == 1) give_turn(group); /* the first group begins */
	int tile = 0, done = 0;
	for (int round = 0; work_of(round) < query_blocks(s); round++) {
		query_block b(s, work_of(round));
		if (!b.exists()) continue;
		query_group<HS> r;
		clear(r.o);
		r.largest[0] = r.largest[1] = -INFINITY;
		r.sum[0] = r.sum[1] = 0;
		barrier_wait(&memory.q_full, done++ % 2);
		attend(r, memory, b, 64 * group, tile, group, s.scale * LOG2_E);
		finish(r, memory.out, 64 * group, rows_of(out, s, b.h), lse + b.h.sums(s), b.first, b.h.t);
	}
	if (group == 0) wait_turn(group); /* takes the turn that the other group gave last */
}

template <int HS>
int32_t forward(void *stream, bf16 *out, float *lse, const bf16 *qkv, attention_shape s, int n, int processors) {
	constexpr size_t BYTES = shared_bytes<forward_memory<HS>>;
	tensor_map map;
	int blocks = s.b * s.nh * ((s.t + HOPPER_ROWS - 1) / HOPPER_ROWS);
	int32_t status = tensor_map_of(&map, qkv, n, s.c + 2 * s.keys, HOPPER_ROWS);
	if (status == 0) status = allow_shared(attention_forward<HS>, BYTES);
	if (status != 0) return status;
	if (n == s.b * s.t) blocks = min(blocks, processors); /* else works differ too much to be dealt out beforehand */
	LAUNCH(attention_forward<HS>, blocks, HOPPER_THREADS, BYTES, stream, map, out, lse, s);
	return launched();
}

} // namespace

int32_t attention_hopper_forward(void *stream, bf16 *out, float *lse, const bf16 *qkv, attention_shape s, int n,
	int processors) {
	return s.hs == 64 ? forward<64>(stream, out, lse, qkv, s, n, processors)
	                  : forward<128>(stream, out, lse, qkv, s, n, processors);
}
