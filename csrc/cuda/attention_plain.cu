/* Attention in float, without tensor cores, by the tiles of attention_plain.cuh. A block has 64 rows
 * of a head. Rows are queries in the forward pass and for dq, keys for dk and dv. */
#include "attention_plain.cuh"

namespace {

/* Grid (b·nh, tiles of queries, parts of the head). */
template <typename E, int SLICES>
__global__ void __launch_bounds__(THREADS, SLICES == 1 ? 2 : 1)
	plain_forward(E *out, float *lse, const E *qkv, attention_shape s, bool vector) {
	SHARED(stage, shared, );
	attention_head head(s, blockIdx.x);
	s.t = head.t;
	int row = (gridDim.y - 1 - blockIdx.y) * ROWS, channel = blockIdx.z * SLICES * WIDTH;
	if (row >= s.t) return;
	head_rows<const E> q = part_of(qkv, s, head, 0), k = part_of(qkv, s, head, 1);
	head_rows<const E> v = part_of(qkv, s, head, 2);
	float o[SLICES][SIDE][2], largest[SIDE], sum[SIDE];
	clear<SLICES>(o);
#pragma unroll
	for (int i = 0; i < SIDE; i++) {
		largest[i] = -INFINITY;
		sum[i] = 0;
	}
	for (int column = 0; column <= row; column += ROWS) {
		score_block p;
		multiply(p, shared, q, row, k, column, s, vector);
#pragma unroll
		for (int i = 0; i < SIDE; i++) {
			int seen = row + my_row() + 16 * i + 1 - column;
			auto sees = [&](int c) { return c < seen; };
			float shrink = softmax(p[i], largest[i], sum[i], sees, s.scale * LOG2_E);
#pragma unroll
			for (int n = 0; n < SLICES; n++)
#pragma unroll
				for (int j = 0; j < 2; j++) o[n][i][j] *= shrink;
		}
		accumulate<SLICES>(o, shared, p, v, column, channel, s, vector);
	}
	float inverse[SIDE];
#pragma unroll
	for (int i = 0; i < SIDE; i++) {
		float total = row_sum(sum[i]);
		int query = row + my_row() + 16 * i;
		inverse[i] = 1 / total;
		if (channel == 0 && my_column() == 0 && query < s.t)
			lse[head.sums(s) + query] = fmaf(largest[i], LN_2, logf(total));
	}
	store<SLICES>(rows_of(out, s, head), o, inverse, row, channel, s);
}

/* Turns a tile of scores, in p, into probabilities p. Turns dout·vᵀ, in ds, into the gradients of the
 * scores. Rows are keys if KEYS is set, else queries. query_stats has the equations. */
template <bool KEYS>
__device__ __forceinline__ void probabilities(score_block &p, score_block &ds, const query_stats *stats, int row,
	int column, attention_shape s) {
#pragma unroll
	for (int i = 0; i < SIDE; i++)
#pragma unroll
		for (int j = 0; j < SIDE; j++) {
			int r = row + my_row() + 16 * i, c = column + my_column() + 16 * j;
			int query = KEYS ? c : r, key = KEYS ? r : c;
			bool seen = query < s.t && key <= query;
			query_stats of = seen ? stats[query] : query_stats{0, 0};
			p[i][j] = seen ? exp2_flush(fmaf(p[i][j], s.scale * LOG2_E, -of.lse2)) : 0;
			ds[i][j] = p[i][j] * (ds[i][j] - of.mean);
		}
}

/* One backward pass. With dy = dout, and tiles of scores p and of their gradients ds:
 *
 *	KEYS false: rows are queries, columns keys; u = k, w = v: du = dq = ds·k
 *	KEYS true:  rows are keys, columns queries; u = q, w = dy: du = dk = dsᵀ·q, dw = dv = pᵀ·dy
 *
 * Grid (b·nh, or b·nh/share if KEYS is set; tiles of rows; parts of the head's channels). A block of
 * keys goes over the queries of all heads that share the keys, one head after the other. */
template <typename E, int SLICES, bool KEYS>
__global__ void __launch_bounds__(THREADS) plain_backward(E *dqkv, const E *dout, const E *qkv,
	const query_stats *stats, attention_shape s, bool vector) {
	SHARED(stage, shared, );
	int heads = KEYS ? s.share : 1;
	attention_head head(s, blockIdx.x * heads);
	s.t = head.t;
	stats += head.sums(s);
	int block = KEYS ? blockIdx.y : gridDim.y - 1 - blockIdx.y;
	int row = block * ROWS, channel = blockIdx.z * SLICES * WIDTH;
	if (row >= s.t) return;
	head_rows<const E> q = part_of(qkv, s, head, 0), k = part_of(qkv, s, head, 1);
	head_rows<const E> v = {k.first + s.keys, k.stride}, dy = rows_of(dout, s, head);
	head_rows<const E> u = KEYS ? q : k, w = KEYS ? dy : v;
	float du[SLICES][SIDE][2], dw[KEYS ? SLICES : 1][SIDE][2];
	clear<SLICES>(du);
	clear<KEYS ? SLICES : 1>(dw);
	for (int left = heads; left > 0; left--) {
		for (int column = KEYS ? row : 0; column < (KEYS ? s.t : row + 1); column += ROWS) {
			score_block p, ds;
			multiply(p, shared, KEYS ? k : q, row, u, column, s, vector);
			multiply(ds, shared, KEYS ? v : dy, row, w, column, s, vector);
			probabilities<KEYS>(p, ds, stats, row, column, s);
			accumulate<SLICES>(du, shared, ds, u, column, channel, s, vector);
			if constexpr (KEYS) accumulate<SLICES>(dw, shared, p, w, column, channel, s, vector);
		}
		u.first += s.hs;
		w.first += s.hs;
		stats += s.t;
	}
	head = attention_head(s, block_again() * heads); /* computed again: keeping it in the loop would cost registers */
	store<SLICES>(part_of(dqkv, s, head, KEYS), du, {s.scale, s.scale, s.scale, s.scale}, row, channel, s);
	if constexpr (KEYS) store<SLICES>(part_of(dqkv, s, head, 2), dw, {1, 1, 1, 1}, row, channel, s);
}

/* Runs both backward passes: first for dq, then for dk and dv. */
template <typename E, int SLICES>
int32_t both(void *stream, E *dqkv, const E *dout, const E *qkv, const query_stats *stats, attention_shape s,
	bool vector) {
	dim3 grid = plain_grid(s, SLICES);
	LAUNCH((plain_backward<E, SLICES, false>), grid, THREADS, 0, stream, dqkv, dout, qkv, stats, s, vector);
	int32_t status = launched();
	if (status != 0) return status;
	grid.x /= s.share;
	LAUNCH((plain_backward<E, SLICES, true>), grid, THREADS, 0, stream, dqkv, dout, qkv, stats, s, vector);
	return launched();
}

} // namespace

/* A block makes all channels of a head of at most 32 channels, and 128 channels of a larger head. */
template <typename E>
int32_t attention_plain_forward(void *stream, E *out, float *lse, const E *qkv, attention_shape s, bool vector) {
	if (s.hs <= WIDTH)
		LAUNCH((plain_forward<E, 1>), plain_grid(s, 1), THREADS, 0, stream, out, lse, qkv, s, vector);
	else
		LAUNCH((plain_forward<E, 4>), plain_grid(s, 4), THREADS, 0, stream, out, lse, qkv, s, vector);
	return launched();
}

template <typename E>
int32_t attention_plain_backward(void *stream, E *dqkv, const E *dout, const E *qkv, const query_stats *stats,
	attention_shape s, bool vector) {
	if (s.hs <= WIDTH) return both<E, 1>(stream, dqkv, dout, qkv, stats, s, vector);
	return both<E, 4>(stream, dqkv, dout, qkv, stats, s, vector);
}

template int32_t attention_plain_forward(void *, float *, float *, const float *, attention_shape, bool);
template int32_t attention_plain_forward(void *, bf16 *, float *, const bf16 *, attention_shape, bool);
template int32_t attention_plain_backward(void *, float *, const float *, const float *, const query_stats *,
	attention_shape, bool);
template int32_t attention_plain_backward(void *, bf16 *, const bf16 *, const bf16 *, const query_stats *,
	attention_shape, bool);
