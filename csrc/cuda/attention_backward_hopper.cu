/* Attention backward on Hopper's tensor cores, in five products. A block has 128 keys of one head of
 * keys: 64 for each of two groups of four warps. It works in steps. A step is a tile of 64 queries of
 * one of the heads that share the keys; the last tile comes first. A group's scores are transposed,
 * 64 keys x 64 queries:
 *
 *	pᵀ = 2^(scale·log2(e)·k·qᵀ - lse2)    dsᵀ = pᵀ·(v·doutᵀ - mean)
 *	dv += pᵀ·dout    dk += dsᵀ·q    dq += ds·k
 *
 * dv and dk take p and ds from registers. dq needs the ds of all 128 keys, so both groups write ds to
 * shared memory, and in each step one of the groups, in turn, computes dq. Each group reads ds from a
 * place of its own, which is written again two steps later. In the step between, the other group
 * waits for the ds of all warps. A warp writes that ds after its earlier products, so the place is free.
 *
 * dq is a sum over the blocks of a head, in global memory. Blocks add their parts in the order of keys,
 * so the bits do not vary. A group writes its part to shared memory. One warp for each group waits until
 * the block of the keys before has added its part, and then orders the copy engine to add this one. The
 * block of the last keys that a query sees adds the sum to its own part and writes dq. Blocks take their
 * numbers as they start, first keys first, so they wait only for blocks that run already. Few heads are
 * worked on at a time, so that their sums stay in the second-level cache. An H100 takes 3,900 clocks
 * for a step at head size 64; its products alone take 1,280. It took 7,000 clocks when groups added to
 * the sums themselves and all heads were worked on at once. */
#include "attention_hopper.cuh"

namespace {

constexpr int QUERIES = 64; /* of a tile */

template <int HS> struct backward_memory {
	head_panels<HS, HOPPER_ROWS> k, v;
	head_panels<HS, QUERIES> q[HOPPER_STAGES], dout[HOPPER_STAGES];
	head_panels<PANEL, HOPPER_ROWS> ds[HOPPER_GROUPS]; /* transposed ds (128 keys, 64 queries), by the group that makes dq */
	float4 dq[HOPPER_GROUPS][HS / 8][GROUP_THREADS];   /* a group's part of dq, in the order of its lanes */
	query_stats stats[HOPPER_STAGES][QUERIES];
	uint64_t keys_full, full[HOPPER_STAGES], free[HOPPER_STAGES]; /* barriers: k and v; q, dout and stats of a stage */
	uint64_t ds_full[HOPPER_GROUPS], dq_full[HOPPER_GROUPS], dq_free[HOPPER_GROUPS]; /* barriers of ds and dq */
	int block; /* the number of the block, in the order in which blocks start */
};

/* The sums of dq in global memory. One sum is 64 queries of a head, in the order of a group's lanes. */
struct query_sums {
	float4 *sums; /* (tiles, nh, hs/8, GROUP_THREADS) */
	int *added;   /* (tiles, nh): how many blocks of keys have added their parts */
	int *blocks;  /* how many blocks have started */
};

/* Returns the most tiles of 64 queries in the sequences before one that begins at token `first`. */
__device__ __forceinline__ int tiles_before(int first, int sequence) { return first / QUERIES + sequence; }

/* How many rows of 64 channels of dq are worked on at a time: their sums take 16 MB. And how many
 * blocks at least: fewer blocks would wait for one another. */
constexpr int ROWS_TOGETHER = 1 << 16, BLOCKS_TOGETHER = 256;

/* A block's head, counted over all sequences, and its first key. Blocks are numbered group by group of
 * `together` heads, then by keys, then by head. */
struct block_place {
	int head, key;

	__device__ __forceinline__ block_place(attention_shape s, int heads, int block) { /* heads of all sequences */
		int tiles = (s.t + HOPPER_ROWS - 1) / HOPPER_ROWS, rows = tiles * HOPPER_ROWS * s.share * (s.hs / 64);
		int together = max(1, max(BLOCKS_TOGETHER / tiles, ROWS_TOGETHER / rows));
		int first = block / (together * tiles) * together;
		block -= first * tiles;
		together = min(together, heads - first);
		head = first + block % together;
		key = block / together * HOPPER_ROWS;
	}
};

/* The work of a block. */
struct key_block {
	attention_head h; /* the first of the query heads that share the keys */
	int sequence, kv, share, key, width; /* head with keys, heads that share it, first key, channels of a row of qkv */

	__device__ __forceinline__ key_block(attention_shape s, int heads, block_place at) /* heads of each sequence */
		: h(s, at.head * s.share), sequence(at.head / heads), kv(at.head % heads), share(s.share), key(at.key),
		  width(s.c + 2 * s.keys) {}
	__device__ __forceinline__ int tiles() const { return (h.t + QUERIES - 1) / QUERIES; }
	__device__ __forceinline__ int number() const { return key / HOPPER_ROWS; } /* among its head's blocks */
};

/* A step of a block: its number, and its tile of queries in a head. */
struct query_step {
	int number, tile, head;

	__device__ __forceinline__ query_step(key_block b) : number(0), tile(b.tiles() - 1), head(b.h.number) {}
	__device__ __forceinline__ bool exists(key_block b) const { return head < b.h.number + b.share; }
	__device__ __forceinline__ void next(key_block b) {
		number++;
		if (--tile >= b.key / QUERIES) return;
		tile = b.tiles() - 1;
		head++;
	}
	/* Whether the block has the last keys that the queries see. Then it writes dq. */
	__device__ __forceinline__ bool has_last(key_block b) const { return tile * QUERIES / HOPPER_ROWS == b.number(); }
	/* Returns the index of the queries' sum in query_sums. */
	__device__ __forceinline__ size_t sum(attention_shape s, key_block b) const {
		return static_cast<size_t>(tiles_before(b.h.first, b.sequence) + tile) * s.nh + head;
	}
};

template <int HS> __device__ __forceinline__ void open_barriers(backward_memory<HS> &memory) {
	barrier_open(&memory.keys_full, 2);
	for (int i = 0; i < HOPPER_STAGES; i++) {
		barrier_open(&memory.full[i], 2 + WARP_ARRIVALS);
		barrier_open(&memory.free[i], HOPPER_GROUPS * 4 * WARP_ARRIVALS);
	}
	for (int i = 0; i < HOPPER_GROUPS; i++) {
		barrier_open(&memory.ds_full[i], HOPPER_GROUPS * 4 * WARP_ARRIVALS);
		barrier_open(&memory.dq_full[i], 4 * WARP_ARRIVALS);
		barrier_open(&memory.dq_free[i], 1);
	}
	barriers_opened();
}

/* Copies the statistics of a tile of queries. Queries beyond the sequence get lse2 = infinity, so p is 0. */
__device__ __forceinline__ void load_stats(query_stats *to, const query_stats *stats, int query, int t) {
	for (int i = threadIdx.x % 32; i < QUERIES; i += 32)
		to[i] = query + i < t ? stats[query + i] : query_stats{INFINITY, 0};
}

/* One warp loads keys and values, and then the tiles of q and dout of all steps as stages become free. */
template <int HS>
__device__ __forceinline__ void load(backward_memory<HS> &memory, const tensor_map &keys, const tensor_map &queries,
	const tensor_map &dout, const query_stats *stats, attention_shape s, key_block b) {
	bool one = threadIdx.x % 32 == 0;
	int channel = s.c + b.kv * HS;
	if (one) {
		memory.k.load(keys, channel, b.h.first + b.key, &memory.keys_full);
		memory.v.load(keys, channel + (b.width - s.c) / 2, b.h.first + b.key, &memory.keys_full);
	}
	for (query_step step(b); step.exists(b); step.next(b)) {
		int stage = step.number % HOPPER_STAGES, parity = step.number / HOPPER_STAGES % 2, query = step.tile * QUERIES;
		attention_head h = b.h;
		h.number = step.head;
		barrier_wait(&memory.free[stage], parity ^ 1);
		if (one) {
			memory.q[stage].load(queries, h.number * HS, h.first + query, &memory.full[stage]);
			memory.dout[stage].load(dout, h.number * HS, h.first + query, &memory.full[stage]);
		}
		load_stats(memory.stats[stage], stats + h.sums(s), query, h.t);
		warp_arrives(&memory.full[stage]);
	}
}

/* One thread adds a group's parts of dq to the sums, each after the block of the keys before. */
template <int HS>
__device__ __forceinline__ void add_parts(backward_memory<HS> &memory, query_sums to, attention_shape s, key_block b,
	int group) {
	constexpr int VALUES = HS / 8 * GROUP_THREADS;
	int parts = 0;
	for (query_step step(b); step.exists(b); step.next(b)) {
		if (step.number % HOPPER_GROUPS != group || step.has_last(b)) continue; /* the other thread adds it, or the group writes dq itself */
		size_t at = step.sum(s, b);
		barrier_wait(&memory.dq_full[group], parts++ % 2);
		if (b.number() > 0) wait_for_count(to.added + at, b.number());
		send_floats(to.sums + at * VALUES, memory.dq[group][0], VALUES, b.number() > 0);
		floats_read();
		barrier_arrive(&memory.dq_free[group]);
		floats_written();
		count_one(to.added + at);
	}
}

/* A lane's part of the sums of its group's 64 keys. */
template <int HS> struct key_group {
	int parts; /* how many parts of dq the group has handed over */
	float dk[HS / 8][4], dv[HS / 8][4];
};

typedef float score_tile[QUERIES / 8][4];        /* 16 keys of a warp x 64 queries */
typedef uint32_t score_operands[QUERIES / 16][4]; /* the same as A */

/* Begins s = x·yᵀ, for 64 rows of x (keys) from `row` on and 64 rows of y (queries). */
template <int HS>
__device__ __forceinline__ void begin_scores(score_tile &s, const head_panels<HS, HOPPER_ROWS> &x, int row,
	const head_panels<HS, QUERIES> &y) {
#pragma unroll
	for (int i = 0; i < HS / 16; i++) multiply<QUERIES, 0, 0>(s, x.by_channels(row, i), y.by_channels(0, i), i > 0);
	products_commit();
}

/* Turns scores into p, 0 for later keys. ahead is the position of the lane's first key minus that of its first query. */
__device__ __forceinline__ void probabilities(score_tile &s, const query_stats *stats, int ahead, float scale2) {
#pragma unroll
	for (int n = 0; n < QUERIES / 8; n++)
#pragma unroll
		for (int i = 0; i < 4; i++) {
			float p = exp2_flush(fmaf(s[n][i], scale2, -stats[8 * n + i % 2].lse2));
			s[n][i] = ahead + i / 2 * 8 > 8 * n + i % 2 ? 0 : p;
		}
}

/* Turns v·doutᵀ, in ds, into ds. */
__device__ __forceinline__ void differentiate(score_tile &ds, const score_tile &p, const query_stats *stats) {
#pragma unroll
	for (int n = 0; n < QUERIES / 8; n++)
#pragma unroll
		for (int i = 0; i < 4; i++) ds[n][i] = p[n][i] * (ds[n][i] - stats[8 * n + i % 2].mean);
}

/* Writes a warp's 16 rows of transposed ds to shared memory, from `row` on. */
__device__ __forceinline__ void share_scores(head_panels<PANEL, HOPPER_ROWS> &panels, int row, const score_operands &ds) {
	int lane = threadIdx.x % 32, g = lane / 4, pair = lane % 4 * 2;
#pragma unroll
	for (int k = 0; k < QUERIES / 16; k++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			*reinterpret_cast<uint32_t *>(&panels.panel[0][row + g + i % 2 * 8][((2 * k + i / 2) ^ g) * 8 + pair]) = ds[k][i];
	publish_shared();
}

/* sum += a·tile: 64 keys x 64 queries times 64 queries x HS. */
template <int HS>
__device__ __forceinline__ void accumulate(float (&sum)[HS / 8][4], const score_operands &a, const head_panels<HS, QUERIES> &tile) {
#pragma unroll
	for (int i = 0; i < QUERIES / 16; i++) multiply<HS, 1>(sum, a[i], tile.by_rows(16 * i, 0), true);
}

/* Hands a part of dq to the thread that adds it to the sums. */
template <int HS>
__device__ __forceinline__ void hand_over(backward_memory<HS> &memory, const float (&dq)[HS / 8][4], int group, int part) {
	barrier_wait(&memory.dq_free[group], part % 2 ^ 1);
#pragma unroll
	for (int n = 0; n < HS / 8; n++)
		memory.dq[group][n][threadIdx.x % GROUP_THREADS] = make_float4(dq[n][0], dq[n][1], dq[n][2], dq[n][3]);
	publish_shared();
	warp_arrives(&memory.dq_full[group]);
}

/* Adds the sum of the parts of the blocks before to dq. */
template <int HS> __device__ __forceinline__ void add_sum(float (&dq)[HS / 8][4], const float4 *sum) {
	sum += threadIdx.x % GROUP_THREADS;
#pragma unroll
	for (int n = 0; n < HS / 8; n++) {
		float4 x = __ldcg(sum + n * GROUP_THREADS);
		dq[n][0] += x.x;
		dq[n][1] += x.y;
		dq[n][2] += x.z;
		dq[n][3] += x.w;
	}
}

/* Whether registers suffice to begin the product of dq before the step's last products end. */
template <int HS> constexpr bool BESIDE_DQ = HS == 64;

/* Waits for a step's products of dv and dk, and frees its stage. PENDING later products go on. */
template <int HS, int PENDING> __device__ __forceinline__ void end_step(key_group<HS> &r, uint64_t *free) {
	products_wait<PENDING>();
	pin_registers(r.dv);
	pin_registers(r.dk);
	warp_arrives(free);
}

/* One group computes the block's part of dq for a tile of queries. The block of the last keys writes
 * the complete dq; other blocks hand their part over. If BESIDE_DQ, it also ends the step. */
template <int HS>
__device__ __forceinline__ void make_dq(key_group<HS> &r, backward_memory<HS> &memory, bf16 *dqkv, query_sums sums,
	attention_shape s, key_block b, query_step step, int group) {
	float dq[HS / 8][4];
	pin_registers(dq);
	products_begin();
#pragma unroll
	for (int i = 0; i < HOPPER_ROWS / 16; i++)
		multiply<HS, 1, 1>(dq, memory.ds[group].by_rows(16 * i, 0), memory.k.by_rows(16 * i, 0), i > 0);
	products_commit();
	if (BESIDE_DQ<HS>) end_step<HS, 1>(r, &memory.free[step.number % HOPPER_STAGES]);
	products_wait<0>();
	pin_registers(dq);
	int query = step.tile * QUERIES, warp = threadIdx.x % GROUP_THREADS / 32 * 16;
	size_t at = step.sum(s, b);
	bool last = step.has_last(b);
	if (last && b.number() > 0 && threadIdx.x % GROUP_THREADS == 0) wait_for_count(sums.added + at, b.number());
	threads_meet(1 + group, GROUP_THREADS); /* none of the group's products reads ds any more: it is written below, or two steps on */
	if (!last) return hand_over<HS>(memory, dq, group, r.parts++);
	if (b.number() > 0) add_sum<HS>(dq, sums.sums + at * (HS / 8) * GROUP_THREADS);
	bf16 *to = dqkv + static_cast<int64_t>(b.h.first) * b.width + step.head * HS;
	store_rows(head_rows<bf16>{to, static_cast<size_t>(b.width)},
		reinterpret_cast<head_panels<HS, QUERIES> &>(memory.ds[group]), warp, dq, query + warp, b.h.t, {s.scale, s.scale});
	if (s.share > 1) threads_meet(1 + group, GROUP_THREADS); /* the next steps write ds. No test can show a lack of this: products hold warps together */
}

/* Begins a step for a group's 64 keys, which begin at `row` of the block. end_step ends it. */
template <int HS>
__device__ __forceinline__ void begin_step(key_group<HS> &r, backward_memory<HS> &memory, key_block b, query_step step,
	int row, float scale2) {
	int stage = step.number % HOPPER_STAGES, turn = step.number % HOPPER_GROUPS, parity = step.number / HOPPER_STAGES % 2;
	int warp = threadIdx.x % GROUP_THREADS / 32 * 16, lane = threadIdx.x % 32;
	int ahead = b.key + row + warp + lane / 4 - step.tile * QUERIES - lane % 4 * 2;
	const query_stats *stats = memory.stats[stage] + lane % 4 * 2;
	score_tile p, ds;
	score_operands p_operands, ds_operands;
	barrier_wait(&memory.full[stage], parity);
	pin_registers(p);
	pin_registers(ds);
	products_begin();
	begin_scores(p, memory.k, row, memory.q[stage]);
	begin_scores(ds, memory.v, row, memory.dout[stage]);
	products_wait<1>();
	pin_registers(p);
	probabilities(p, stats, ahead, scale2);
	pack_operands(p_operands, p);
	pin_registers(r.dv);
	products_begin();
	accumulate(r.dv, p_operands, memory.dout[stage]);
	products_commit();
	products_wait<1>();
	pin_registers(ds);
	differentiate(ds, p, stats);
	pack_operands(ds_operands, ds);
	share_scores(memory.ds[turn], row + warp, ds_operands);
	warp_arrives(&memory.ds_full[turn]);
	pin_registers(r.dk);
	products_begin();
	accumulate(r.dk, ds_operands, memory.q[stage]);
	products_commit();
}

/* Grid: b·nh/share·(tiles of 128 keys in the longest sequence). Group 2 loads and adds, groups 0 and 1 multiply. */
template <int HS>
__global__ void __launch_bounds__(HOPPER_THREADS, 1) attention_backward(const __grid_constant__ tensor_map keys,
	const __grid_constant__ tensor_map queries, const __grid_constant__ tensor_map dout, bf16 *dqkv,
	const query_stats *stats, query_sums sums, attention_shape s) {
	DYNAMIC_SHARED(unsigned char, shared);
	backward_memory<HS> &memory = at_panel<backward_memory<HS>>(shared);
	if (threadIdx.x == 0) {
		memory.block = atomicAdd(sums.blocks, 1);
		open_barriers(memory);
	}
	__syncthreads();
	key_block b(s, s.keys / HS, block_place(s, s.b * (s.keys / HS), memory.block));
	if (b.key >= b.h.t) return;
	int group = my_group(), row = 64 * group;
	if (group == HOPPER_GROUPS) {
		give_registers<LOADING>();
		int warp = threadIdx.x % GROUP_THREADS / 32;
		if (warp == 0) load(memory, keys, queries, dout, stats, s, b);
		else if (warp <= HOPPER_GROUPS && threadIdx.x % 32 == 0) add_parts(memory, sums, s, b, warp - 1);
		return;
	}
	take_registers<MULTIPLYING>();
	key_group<HS> r;
	r.parts = 0;
	clear(r.dk);
	clear(r.dv);
	barrier_wait(&memory.keys_full, 0);
	for (query_step step(b); step.exists(b); step.next(b)) {
		begin_step(r, memory, b, step, row, s.scale * LOG2_E);
		bool turn = step.number % HOPPER_GROUPS == group;
		if (!BESIDE_DQ<HS> || !turn) end_step<HS, 0>(r, &memory.free[step.number % HOPPER_STAGES]);
		if (!turn) continue;
		barrier_wait(&memory.ds_full[group], step.number / HOPPER_GROUPS % 2);
		make_dq(r, memory, dqkv, sums, s, b, step, group);
	}
	threads_meet(3, HOPPER_GROUPS * GROUP_THREADS); /* no product reads keys or values any more, so results may pass through their memory */
	row += threadIdx.x % GROUP_THREADS / 32 * 16; /* of the warp */
	head_rows<bf16> dk = {dqkv + static_cast<int64_t>(b.h.first) * b.width + s.c + b.kv * HS, static_cast<size_t>(b.width)};
	store_rows(dk, memory.k, row, r.dk, b.key + row, b.h.t, {s.scale, s.scale});
	dk.first += s.keys; /* now dv */
	store_rows(dk, memory.v, row, r.dv, b.key + row, b.h.t, {1, 1});
}

/* Returns the most tiles of 64 queries that all heads have together. */
size_t all_tiles(attention_shape s, int n) { return (static_cast<size_t>(n) / QUERIES + s.b) * s.nh; }

template <int HS>
int32_t backward(void *stream, bf16 *dqkv, const bf16 *dout, const bf16 *qkv, const query_stats *stats, void *work,
	attention_shape s, int n) {
	constexpr size_t BYTES = shared_bytes<backward_memory<HS>>;
	static_assert(BYTES <= 227 << 10, "what a block may have");
	size_t tiles = all_tiles(s, n);
	float4 *sums = static_cast<float4 *>(work);
	int *counts = reinterpret_cast<int *>(sums + tiles * (HS / 8) * GROUP_THREADS);
	int width = s.c + 2 * s.keys;
	tensor_map keys, queries, gradients;
	int32_t status = tensor_map_of(&keys, qkv, n, width, HOPPER_ROWS);
	if (status == 0) status = tensor_map_of(&queries, qkv, n, width, QUERIES);
	if (status == 0) status = tensor_map_of(&gradients, dout, n, s.c, QUERIES);
	if (status == 0) status = allow_shared(attention_backward<HS>, BYTES);
	if (status == 0)
		status = static_cast<int32_t>(
			cudaMemsetAsync(counts, 0, (tiles + 1) * sizeof(int), static_cast<cudaStream_t>(stream)));
	if (status != 0) return status;
	unsigned blocks = s.b * (s.nh / s.share) * ((s.t + HOPPER_ROWS - 1) / HOPPER_ROWS);
	LAUNCH(attention_backward<HS>, blocks, HOPPER_THREADS, BYTES, stream, keys, queries, gradients, dqkv, stats,
		query_sums{sums, counts, counts + tiles}, s);
	return launched();
}

} // namespace

size_t attention_hopper_bytes(attention_shape s, int n) {
	size_t tiles = all_tiles(s, n);
	return tiles * QUERIES * s.hs * sizeof(float) + (tiles + 1) * sizeof(int);
}

int32_t attention_hopper_backward(void *stream, bf16 *dqkv, const bf16 *dout, const bf16 *qkv, const query_stats *stats,
	void *work, attention_shape s, int n) {
	return s.hs == 64 ? backward<64>(stream, dqkv, dout, qkv, stats, work, s, n)
	                  : backward<128>(stream, dqkv, dout, qkv, stats, work, s, n);
}
