/* Tokens by bucket. The largest projection of a query or key names its bucket. One warp then
 * sorts the queries or the keys of a head, by a stable counting sort. Each projection reads
 * qkv once, mostly from the L2 cache. The sort goes through the tokens twice, 32 at a time.
 * Also here: keys that are made of queries. */
#include "attention.cuh"
#include "reduce.cuh"

namespace {

/* Sets bucket (n, 2, nh): of every token's queries, then keys. */
template <typename E>
__global__ void __launch_bounds__(256) find_buckets(int32_t *bucket, const E *qkv, const float *projections, int half,
	bool shared, size_t all, attention_shape s) {
	size_t index = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
	if (index >= all) return;
	int head = index % s.nh, side = index / s.nh % 2, up = 0, down = 0;
	const E *x = qkv + (index / s.nh / 2 * 3 + (shared ? 0 : side)) * s.c + static_cast<size_t>(head) * s.hs;
	const float *r = projections + static_cast<size_t>(head) * half * s.hs;
	float largest = -INFINITY, least = INFINITY;
	for (int i = 0; i < half; i++, r += s.hs) {
		float product = 0;
		for (int j = 0; j < s.hs; j++) product += wide(x[j]) * r[j];
		if (product > largest) {
			largest = product;
			up = i;
		}
		if (product < least) {
			least = product;
			down = half + i;
		}
	}
	bucket[index] = -least > largest ? down : up;
}

/* The lanes of a warp whose bucket is the caller's. Lanes that are not inside have none. */
__device__ __forceinline__ unsigned same_bucket(int bucket, bool inside, int bits) {
	unsigned same = __ballot_sync(0xffffffff, inside);
	for (int bit = 0; bit < bits; bit++) {
		bool mine = bucket >> bit & 1;
		unsigned set = __ballot_sync(0xffffffff, mine);
		same &= mine ? set : ~set;
	}
	return same;
}

/* A warp sorts t tokens. During the second pass starts[b + 1] is the place of bucket b's next
 * token. After that pass it is the beginning of bucket b + 1. */
__device__ void sort(int32_t *order, int32_t *starts, const int32_t *bucket, int t, int buckets, int bits, int stride) {
	int lane = threadIdx.x % 32;
	for (int b = lane; b <= buckets; b += 32) starts[b] = 0;
	__syncwarp();
	for (int pass = 0; pass < 2; pass++) {
		for (int first = 0; first < t; first += 32) {
			int i = first + lane;
			int mine = i < t ? bucket[static_cast<size_t>(i) * stride] : 0;
			unsigned same = same_bucket(mine, i < t, bits), before = same & ((1u << lane) - 1);
			if (pass == 1 && i < t) order[starts[mine + 1] + __popc(before)] = i;
			__syncwarp();
			if (i < t && before == 0) starts[mine + 1] += __popc(same);
			__syncwarp();
		}
		if (pass == 0 && lane == 0) {
			int sum = 0;
			for (int b = 1; b <= buckets; b++) {
				int count = starts[b];
				starts[b] = sum;
				sum += count;
			}
		}
		__syncwarp(); /* orders memory; votes keep lanes together, so no order of threads shows it */
	}
}

/* Grid (b·nh), two warps. attended is of each head. */
__global__ void __launch_bounds__(64) sort_heads(int32_t *order, int32_t *starts, double *attended, const int32_t *bucket,
	int buckets, int bits, attention_shape s) {
	SHARED(double, sums, [64]);
	attention_head h(s, blockIdx.x);
	int side = threadIdx.x / 32;
	int32_t *own = order + 2 * h.sums(s), *begin = starts + 2 * static_cast<size_t>(blockIdx.x) * (buckets + 1);
	sort(own + static_cast<size_t>(side) * h.t, begin + side * (buckets + 1),
		bucket + (static_cast<size_t>(h.first) * 2 + side) * s.nh + h.number, h.t, buckets, bits, 2 * s.nh);
	__syncthreads();
	double sum = 0;
	for (int b = threadIdx.x; b < buckets; b += 64) {
		int key = begin[buckets + 1 + b], last = begin[buckets + 2 + b];
		for (int i = begin[b]; i < begin[b + 1]; i++) {
			while (key < last && own[h.t + key] <= own[i]) key++;
			sum += key - begin[buckets + 1 + b];
		}
	}
	sums[threadIdx.x] = sum;
	__syncthreads();
	if (threadIdx.x > 0) return;
	for (int i = 1; i < 64; i++) sum += sums[i];
	attended[blockIdx.x] = sum;
}

/* One warp. All terms are integers, so that sums are exact. */
__global__ void __launch_bounds__(32) sum_pairs(double *pairs, const double *attended, attention_shape s) {
	double seen = 0, all = 0;
	for (int i = threadIdx.x; i < s.b * s.nh; i += 32) {
		double t = attention_head(s, i).t;
		seen += attended[i];
		all += t * (t + 1) / 2;
	}
	seen = warp_reduce(seen, plus());
	all = warp_reduce(all, plus());
	if (threadIdx.x == 0) {
		pairs[0] = seen;
		pairs[1] = all;
	}
}

template <typename E>
int32_t find(void *stream, int32_t *bucket, const void *qkv, const float *projections, int half, bool shared, size_t all,
	attention_shape s) {
	if (all == 0) return 0;
	LAUNCH((find_buckets<E>), static_cast<unsigned>((all + 255) / 256), 256, 0, stream, bucket,
		static_cast<const E *>(qkv), projections, half, shared, all, s);
	return launched();
}

const float LEAST = 1e-12f; /* as package kernel has it */

__device__ __forceinline__ float length_of(float square) { return fmaxf(sqrtf(square), LEAST); }

/* A warp makes a token's key of a head. */
template <typename E>
__global__ void __launch_bounds__(256) share(E *qkv, const E *qv, int64_t heads, int c, int nh) {
	int64_t index = (static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x) / 32;
	if (index >= heads) return;
	int hs = c / nh, lane = threadIdx.x % 32;
	int64_t i = index / nh, at = index % nh * hs;
	const E *q = qv + i * 2 * c + at;
	E *row = qkv + i * 3 * c + at;
	float square = 0;
	for (int x = lane; x < hs; x += 32) square += wide(q[x]) * wide(q[x]);
	float length = length_of(warp_reduce(square, plus()));
	for (int x = lane; x < hs; x += 32) {
		row[x] = q[x];
		row[c + x] = narrow<E>(wide(q[x]) / length);
		row[2 * c + x] = q[c + x];
	}
}

template <typename E>
__global__ void __launch_bounds__(256) share_gradient(E *dqv, const E *dqkv, const E *qkv, int64_t heads, int c, int nh) {
	int64_t index = (static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x) / 32;
	if (index >= heads) return;
	int hs = c / nh, lane = threadIdx.x % 32;
	int64_t i = index / nh, at = index % nh * hs;
	const E *q = qkv + i * 3 * c + at, *d = dqkv + i * 3 * c + at;
	E *row = dqv + i * 2 * c + at;
	float square = 0, along = 0;
	for (int x = lane; x < hs; x += 32) {
		square += wide(q[x]) * wide(q[x]);
		along += wide(q[x]) * wide(d[c + x]);
	}
	square = warp_reduce(square, plus());
	along = warp_reduce(along, plus());
	float length = length_of(square);
	along = sqrtf(square) < LEAST ? 0 : along / length / length;
	for (int x = lane; x < hs; x += 32) {
		row[x] = narrow<E>(wide(d[x]) + (wide(d[c + x]) - wide(q[x]) * along) / length);
		row[c + x] = d[2 * c + x];
	}
}

template <typename E>
int32_t run_share(void *stream, void *qkv, const void *qv, int64_t heads, int c, int nh) {
	LAUNCH((share<E>), static_cast<unsigned>((heads + 7) / 8), 256, 0, stream, static_cast<E *>(qkv),
		static_cast<const E *>(qv), heads, c, nh);
	return launched();
}

template <typename E>
int32_t run_share_gradient(void *stream, void *dqv, const void *dqkv, const void *qkv, int64_t heads, int c, int nh) {
	LAUNCH((share_gradient<E>), static_cast<unsigned>((heads + 7) / 8), 256, 0, stream, static_cast<E *>(dqv),
		static_cast<const E *>(dqkv), static_cast<const E *>(qkv), heads, c, nh);
	return launched();
}

} // namespace

extern "C" int32_t dynmo_cuda_attention_hash(dynmo_cuda *k, void *stream, int32_t *order, int32_t *starts, double *pairs,
	const void *qkv, const int32_t *offsets, const float *projections, int32_t shared, int32_t buckets, int32_t b,
	int32_t longest, int32_t n, int32_t c, int32_t nh) {
	attention_shape s = attention_shape_of(offsets, b, longest, c, nh, nh);
	size_t all = static_cast<size_t>(n) * 2 * nh, heads = static_cast<size_t>(b) * nh;
	int bits = 0;
	while (1 << bits < buckets) bits++;
	void *work;
	int32_t status = workspace(k, heads * sizeof(double) + all * sizeof(int32_t), &work);
	if (status != 0) return status;
	double *attended = static_cast<double *>(work);
	int32_t *bucket = reinterpret_cast<int32_t *>(attended + heads);
	status = BY_TYPE(k, find, stream, bucket, qkv, projections, buckets / 2, shared != 0, all, s);
	if (status != 0) return status;
	if (heads > 0) LAUNCH(sort_heads, static_cast<unsigned>(heads), 64, 0, stream, order, starts, attended, bucket, buckets, bits, s);
	LAUNCH(sum_pairs, 1, 32, 0, stream, pairs, attended, s);
	return launched();
}

extern "C" int32_t dynmo_cuda_share_keys(
	dynmo_cuda *k, void *stream, void *qkv, const void *qv, int32_t n, int32_t c, int32_t nh) {
	if (n == 0 || c == 0) return 0;
	return BY_TYPE(k, run_share, stream, qkv, qv, static_cast<int64_t>(n) * nh, c, nh);
}

extern "C" int32_t dynmo_cuda_share_keys_gradient(
	dynmo_cuda *k, void *stream, void *dqv, const void *dqkv, const void *qkv, int32_t n, int32_t c, int32_t nh) {
	if (n == 0 || c == 0) return 0;
	return BY_TYPE(k, run_share_gradient, stream, dqv, dqkv, qkv, static_cast<int64_t>(n) * nh, c, nh);
}
