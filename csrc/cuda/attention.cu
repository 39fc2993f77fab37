/* Causal multi-head attention (Dao et al. 2022; Dao 2023): the calls, and the
 * choice of kernels. A head's t x t scores exist only as tiles in registers. Grids
 * have the size that sequences of the longest length need. Blocks beyond the end
 * of their sequence return at once.
 *
 * Forward reads qkv and writes out and lse: 8·b·t·c bytes in bfloat16. It makes
 * b·t²·c multiply-adds and b·nh·t²/2 exponentials, without the masked half. An
 * H200's SM makes 16 exponentials and 2048 multiply-adds a clock. At head size 32
 * a score's exponential takes 1/16 clock and its 64 multiply-adds take 1/32. So
 * exponentials are the bound, and the kernels add little else to them.
 * Backward makes the probabilities again from lse: by queries for dq, and by keys
 * for dk and dv. That takes 7 products, where a kernel that adds dq up by atomics
 * takes 5, but the bits depend on operands and shape alone. Hopper's own kernels
 * (attention_hopper.cu) take 5 products and add dq up in the order of keys. */
#include "attention.cuh"
#ifdef DYNMO_HOPPER
#include "attention_hopper.cuh"

static bool has_hopper(const dynmo_cuda *k, attention_shape s) {
	return k->attention == ATTENTION_HOPPER && (s.hs == 64 || s.hs == 128);
}
#endif

static bool has_tiles(const dynmo_cuda *k, attention_shape s) {
	return k->attention != ATTENTION_PLAIN && (s.hs == 32 || s.hs == 64 || s.hs == 128);
}

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

/* Rounds bytes up to 16, so that what follows in the workspace is aligned. */
static size_t round_up(size_t bytes) { return (bytes + 15) / 16 * 16; }

template <typename E>
static int32_t forward(const dynmo_cuda *k, void *stream, void *out, float *lse, const void *qkv, attention_shape s, int n) {
	const E *x = static_cast<const E *>(qkv);
	E *y = static_cast<E *>(out);
	if constexpr (sizeof(E) == sizeof(bf16)) {
		bool aligned = attention_aligned(x) && attention_aligned(y);
#ifdef DYNMO_HOPPER
		if (has_hopper(k, s) && aligned) return attention_hopper_forward(stream, y, lse, x, s, n, k->processors);
#endif
		if (has_tiles(k, s) && aligned) return attention_tiles_forward(stream, y, lse, x, s);
	}
	return attention_plain_forward(stream, y, lse, x, s, s.hs % 8 == 0 && attention_aligned(x));
}

extern "C" int32_t dynmo_cuda_attention_forward(dynmo_cuda *k, void *stream, void *out, float *lse, const void *qkv,
	const int32_t *offsets, int32_t b, int32_t longest, int32_t n, int32_t c, int32_t nh, int32_t kv) {
	if (n == 0 || c == 0) return 0;
	return BY_TYPE(k, forward, k, stream, out, lse, qkv, attention_shape_of(offsets, b, longest, c, nh, kv), n);
}

/* The workspace has the statistics (query_stats), then the workspace of Hopper's kernels. */
template <typename E>
static int32_t backward(dynmo_cuda *k, void *stream, void *dqkv, const void *dout, const void *qkv, const void *out,
	const float *lse, attention_shape s, int n) {
	const E *dy = static_cast<const E *>(dout), *x = static_cast<const E *>(qkv), *y = static_cast<const E *>(out);
	E *dx = static_cast<E *>(dqkv);
	bool vector = s.hs % 8 == 0 && attention_aligned(dy) && attention_aligned(x) && attention_aligned(y);
	bool tensor_cores = sizeof(E) == sizeof(bf16) && vector && attention_aligned(dx);
	size_t bytes = round_up(static_cast<size_t>(n) * s.nh * sizeof(query_stats)), more = 0;
#ifdef DYNMO_HOPPER
	bool hopper = tensor_cores && has_hopper(k, s);
	if (hopper) more = attention_hopper_bytes(s, n);
#endif
	void *work;
	int32_t status = workspace(k, bytes + more, &work);
	query_stats *stats = static_cast<query_stats *>(work);
	if (status == 0) status = attention_stats_of(stream, stats, dy, y, lse, s, vector);
	if (status != 0) return status;
	if constexpr (sizeof(E) == sizeof(bf16)) {
#ifdef DYNMO_HOPPER
		if (hopper) return attention_hopper_backward(stream, dx, dy, x, stats, static_cast<char *>(work) + bytes, s, n);
#endif
		if (tensor_cores && has_tiles(k, s)) return attention_tiles_backward(stream, dx, dy, x, stats, s);
	}
	return attention_plain_backward(stream, dx, dy, x, stats, s, vector);
}

extern "C" int32_t dynmo_cuda_attention_backward(dynmo_cuda *k, void *stream, void *dqkv, const void *dout,
	const void *qkv, const void *out, const float *lse, const int32_t *offsets, int32_t b, int32_t longest,
	int32_t n, int32_t c, int32_t nh, int32_t kv) {
	if (n == 0 || c == 0) return 0;
	return BY_TYPE(k, backward, k, stream, dqkv, dout, qkv, out, lse, attention_shape_of(offsets, b, longest, c, nh, kv), n);
}
