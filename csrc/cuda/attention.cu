/* Causal multi-head attention (Dao et al. 2022; Dao 2023): the calls, and the
 * choice of kernels. A head's t x t scores exist only as tiles in registers. Grids
 * are as large as sequences of the longest length need; blocks beyond the end of
 * their sequence leave at once.
 *
 * Forward reads qkv and writes out and lse, 8·b·t·c bytes in bfloat16, and makes
 * b·t²·c multiply-adds and b·nh·t²/2 exponentials, with the half that is masked left
 * out. An H200's SM makes 16 exponentials a clock and 2048 multiply-adds: at head
 * size 32 a score's exponential takes 1/16 clock and its 64 multiply-adds 1/32, so
 * the exponentials are the bound, and the kernels add little else to them.
 * Backward makes the probabilities again from lse, once by queries for dq and once
 * by keys for dk and dv: 7 products for the 5 of a kernel that adds dq up by
 * atomics, and bits that depend on nothing but operands and shape. Hopper's own
 * kernels (attention_hopper.cu) make 5, and add dq up in the order of keys. */
#include "attention.cuh"
#include "attention_grouped.cuh"
#ifdef DYNMO_HOPPER
#include "attention_hopper.cuh"

static bool has_hopper(const dynmo_cuda *k, attention_shape s) {
	return k->attention == ATTENTION_HOPPER && (s.hs == 64 || s.hs == 128);
}
#endif

static bool has_tiles(attention_shape s) { return s.hs == 32 || s.hs == 64 || s.hs == 128; }

/* The sum over 8 channels of x·y. */
template <typename E> static __device__ __forceinline__ float dot8(const E *x, const E *y, float sum) {
	struct __align__(16) chunk {
		E element[8];
	};
	chunk a = *reinterpret_cast<const chunk *>(x), b = *reinterpret_cast<const chunk *>(y);
#pragma unroll
	for (int i = 0; i < 8; i++) sum = fmaf(wide(a.element[i]), wide(b.element[i]), sum);
	return sum;
}

/* Fills in stats, which lie as lse does. A head's channels of one token lie together
 * in both out and dout: `lanes` lanes, a power of two, take 8 at a time. A sequence
 * has `blocks` blocks. */
template <typename E>
static __global__ void __launch_bounds__(256) attention_stats(query_stats *stats, const E *dout, const E *out,
	const float *lse, attention_shape s, int blocks, int lanes, bool vector) {
	attention_head h(s, blockIdx.x / blocks * s.nh);
	size_t index = (static_cast<size_t>(blockIdx.x % blocks) * blockDim.x + threadIdx.x) / lanes; /* token·nh + head */
	int lane = threadIdx.x % lanes;
	bool inside = index < static_cast<size_t>(h.t) * s.nh;
	float sum = 0;
	if (inside) {
		size_t at = (static_cast<size_t>(h.first) * s.nh + index) * s.hs;
		const E *x = dout + at, *y = out + at;
		for (int first = 8 * lane; first < s.hs; first += 8 * lanes) {
			if (vector) {
				sum = dot8(x + first, y + first, sum);
			} else {
				for (int i = first; i < first + 8 && i < s.hs; i++) sum = fmaf(wide(x[i]), wide(y[i]), sum);
			}
		}
	}
	for (int across = lanes / 2; across > 0; across /= 2) sum += __shfl_xor_sync(0xffffffff, sum, across);
	if (inside && lane == 0) {
		size_t to = static_cast<size_t>(h.first) * s.nh + index % s.nh * h.t + index / s.nh;
		stats[to] = {lse[to] * LOG2_E, sum};
	}
}

template <typename E>
int32_t attention_stats_of(void *stream, query_stats *stats, const E *dout, const E *out, const float *lse,
	attention_shape s, bool vector) {
	int lanes = 1;
	while (lanes < 32 && 8 * lanes < s.hs) lanes *= 2;
	unsigned blocks = static_cast<unsigned>((static_cast<size_t>(s.t) * s.nh * lanes + 255) / 256);
	LAUNCH((attention_stats<E>), s.b * blocks, 256, 0, stream, stats, dout, out, lse, s, blocks, lanes, vector);
	return launched();
}

template int32_t attention_stats_of(void *, query_stats *, const float *, const float *, const float *, attention_shape, bool);
template int32_t attention_stats_of(void *, query_stats *, const bf16 *, const bf16 *, const float *, attention_shape, bool);

/* Bytes of workspace before something else: whole packs. */
static size_t packs(size_t bytes) { return (bytes + 15) / 16 * 16; }

/* Attention of heads that have keys of their own: a row of qkv has 3c channels. */
template <typename E>
static int32_t forward_apart(const dynmo_cuda *k, void *stream, E *out, float *lse, const E *qkv, attention_shape s) {
	if constexpr (sizeof(E) == sizeof(bf16)) {
		if (k->attention != ATTENTION_PLAIN && has_tiles(s) && attention_aligned(qkv) && attention_aligned(out))
			return attention_tiles_forward(stream, out, lse, qkv, s);
	}
	return attention_plain_forward(stream, out, lse, qkv, s, s.hs % 8 == 0 && attention_aligned(qkv));
}

template <typename E>
static int32_t forward(dynmo_cuda *k, void *stream, void *out, float *lse, const void *qkv, attention_shape s, int n, int kv) {
	const E *x = static_cast<const E *>(qkv);
#ifdef DYNMO_HOPPER
	if constexpr (sizeof(E) == sizeof(bf16)) {
		if (has_hopper(k, s) && attention_aligned(qkv) && attention_aligned(out))
			return attention_hopper_forward(stream, static_cast<E *>(out), lse, x, s, n, kv);
	}
#endif
	if (kv < s.nh) {
		size_t rows = static_cast<size_t>(n);
		void *copies;
		int32_t status = workspace(k, rows * 3 * s.c * sizeof(E), &copies);
		if (status == 0) status = attention_spread(stream, static_cast<E *>(copies), x, rows, attention_group_of(s.c, s.nh, kv));
		if (status != 0) return status;
		x = static_cast<const E *>(copies);
	}
	return forward_apart(k, stream, static_cast<E *>(out), lse, x, s);
}

extern "C" int32_t dynmo_cuda_attention_forward(dynmo_cuda *k, void *stream, void *out, float *lse, const void *qkv,
	const int32_t *offsets, int32_t b, int32_t longest, int32_t n, int32_t c, int32_t nh, int32_t kv) {
	if (n == 0 || c == 0) return 0;
	return BY_TYPE(k, forward, k, stream, out, lse, qkv, attention_shape_of(offsets, b, longest, c, nh), n, kv);
}

/* As forward_apart. */
template <typename E>
static int32_t backward_apart(const dynmo_cuda *k, void *stream, E *dx, const E *dy, const E *x, const E *y, const float *lse,
	query_stats *stats, attention_shape s) {
	bool vector = s.hs % 8 == 0 && attention_aligned(dy) && attention_aligned(x) && attention_aligned(y);
	int32_t status = attention_stats_of(stream, stats, dy, y, lse, s, vector);
	if (status != 0) return status;
	if constexpr (sizeof(E) == sizeof(bf16)) {
		if (k->attention != ATTENTION_PLAIN && has_tiles(s) && vector && attention_aligned(dx))
			return attention_tiles_backward(stream, dx, dy, x, stats, s);
	}
	return attention_plain_backward(stream, dx, dy, x, stats, s, vector);
}

#ifdef DYNMO_HOPPER
static int32_t backward_hopper(dynmo_cuda *k, void *stream, bf16 *dx, const bf16 *dy, const bf16 *x, const bf16 *y,
	const float *lse, attention_shape s, int n, int kv) {
	size_t stats = packs(static_cast<size_t>(n) * s.nh * sizeof(query_stats));
	void *work;
	int32_t status = workspace(k, stats + attention_hopper_bytes(s, n), &work);
	query_stats *of = static_cast<query_stats *>(work);
	if (status == 0) status = attention_stats_of(stream, of, dy, y, lse, s, true);
	if (status != 0) return status;
	return attention_hopper_backward(stream, dx, dy, x, of, static_cast<char *>(work) + stats, s, n, kv);
}
#endif

/* The workspace has the statistics and, where heads share keys, copies of these and of
 * their gradients. */
template <typename E>
static int32_t backward(dynmo_cuda *k, void *stream, void *dqkv, const void *dout, const void *qkv, const void *out,
	const float *lse, attention_shape s, int n, int kv) {
	const E *dy = static_cast<const E *>(dout), *x = static_cast<const E *>(qkv), *y = static_cast<const E *>(out);
	E *dx = static_cast<E *>(dqkv);
	size_t rows = static_cast<size_t>(n), stats = packs(rows * s.nh * sizeof(query_stats));
#ifdef DYNMO_HOPPER
	if constexpr (sizeof(E) == sizeof(bf16)) {
		if (has_hopper(k, s) && attention_aligned(dx) && attention_aligned(dy) && attention_aligned(x) && attention_aligned(y)) return backward_hopper(k, stream, dx, dy, x, y, lse, s, n, kv);
	}
#endif
	size_t copies = kv < s.nh ? packs(rows * 3 * s.c * sizeof(E)) : 0;
	void *work;
	int32_t status = workspace(k, stats + 2 * copies, &work);
	if (status != 0) return status;
	query_stats *of = static_cast<query_stats *>(work);
	if (kv == s.nh) return backward_apart(k, stream, dx, dy, x, y, lse, of, s);
	attention_group g = attention_group_of(s.c, s.nh, kv);
	E *copy = reinterpret_cast<E *>(static_cast<char *>(work) + stats);
	E *gradient = reinterpret_cast<E *>(static_cast<char *>(work) + stats + copies);
	status = attention_spread(stream, copy, x, rows, g);
	if (status == 0) status = backward_apart<E>(k, stream, gradient, dy, copy, y, lse, of, s);
	return status == 0 ? attention_collect<E>(stream, dx, gradient, rows, g) : status;
}

extern "C" int32_t dynmo_cuda_attention_backward(dynmo_cuda *k, void *stream, void *dqkv, const void *dout,
	const void *qkv, const void *out, const float *lse, const int32_t *offsets, int32_t b, int32_t longest,
	int32_t n, int32_t c, int32_t nh, int32_t kv) {
	if (n == 0 || c == 0) return 0;
	return BY_TYPE(k, backward, k, stream, dqkv, dout, qkv, out, lse, attention_shape_of(offsets, b, longest, c, nh), n, kv);
}
