/* Softmax and cross-entropy over slices of the vocabulary. A block has a row.
 *
 * softmax_merge reads the logits once. Each thread keeps its largest logit and
 * the sum of exponentials relative to that logit. The sum shrinks when a larger
 * logit comes (Milakov & Gimelshein 2018). cross_entropy keeps the row in shared
 * memory meanwhile, where it fits (bf16: 115,000 columns on an H100), and writes
 * the gradient from there: 2·n·v elements in all. Exponentials are float. Eight
 * at a time are added in float, and these sums are added in double.
 *
 * Rows of a vocabulary of odd size do not begin where packs begin, because packs
 * are those of the whole matrix. The edges of a row are the elements outside the
 * packs that lie in it whole. The first threads take one edge element each. */
#include <float.h>

#include "mma.cuh"
#include "pack.cuh"
#include "reduce.cuh"

namespace {

const int THREADS = 512; /* of a row, at most; two such blocks fill a processor's registers */
const int FLIGHT = 4;    /* packs that a thread loads before it looks at the first */

/* e^x, or 0 where e^x is below the normal numbers. __expf has twice the instructions;
 * these alone would take as long as the traffic of memory. */
__device__ __forceinline__ float exponential(float x) { return exp2_flush(1.4426950408889634f * x); }

/* A row of v logits: head elements, body elements in whole packs, then the rest. */
template <typename E> struct columns {
	E *x;
	int v, head, body;

	__device__ __forceinline__ columns(E *logits, int i, int v) : x(logits + static_cast<int64_t>(i) * v), v(v)
	{
		const int N = width<E>;
		int past = static_cast<int>(static_cast<int64_t>(i) * v % N);
		head = min(v, (N - past) % N);
		body = (v - head) / N * N;
	}

	/* The column of the edge element that is the thread's, v if it has none. */
	__device__ __forceinline__ int edge() const
	{
		int t = threadIdx.x;
		return t < head ? t : min(v, t + body);
	}
};

/* Does f(pack, at) with all packs of a row's body, at the pack's first column.
 * With KEPT, kept has them already. */
template <bool VECTOR, bool KEPT, typename E, typename F>
__device__ __forceinline__ void each_pack(const columns<E> &row, const pack<E> *kept, F f)
{
	const int N = width<E>;
	const E *body = row.x + row.head;
	int step = blockDim.x * N;
	for (int at = threadIdx.x * N; at < row.body; at += FLIGHT * step) {
		pack<E> p[FLIGHT];
#pragma unroll
		for (int u = 0; u < FLIGHT; u++) {
			int from = at + u * step;
			if constexpr (!KEPT)
				p[u] = read<VECTOR, N>(body, from, row.body);
			else if (from < row.body)
				p[u] = kept[from / N];
		}
#pragma unroll
		for (int u = 0; u < FLIGHT; u++)
			if (at + u * step < row.body) f(p[u], row.head + at + u * step);
	}
}

/* The logits that a thread has seen. A NaN does not count as largest, but makes sum one. */
struct seen {
	float largest = -FLT_MAX;
	double sum = 0; /* Σ exp(logit - largest) */

	template <int N> __device__ __forceinline__ void add(const float (&logits)[N])
	{
		float top = logits[0], exponentials = 0;
#pragma unroll
		for (int j = 1; j < N; j++)
			top = fmaxf(top, logits[j]);
		if (top > largest) {
			sum *= exponential(largest - top);
			largest = top;
		}
#pragma unroll
		for (int j = 0; j < N; j++)
			exponentials += exponential(logits[j] - largest);
		sum += exponentials;
	}
};

/* The statistics of n rows: of each the largest logit, Σ exp(logit - largest),
 * and the target's logit. */
struct statistics {
	double *out;
	const double *before;
	const int32_t *targets;
	int n, first;
};

/* Looks at a row, and sets row i of s.out; with KEEP, kept gets its packs. */
template <bool VECTOR, bool KEEP, typename E>
__device__ __forceinline__ void merge(const statistics &s, int i, const columns<E> &row, pack<E> *kept)
{
	const int N = width<E>;
	SHARED(float, largest, [THREADS / 32]);
	SHARED(double, sums, [THREADS / 32]);
	seen mine;
	int column = s.targets[i] - s.first, edge = row.edge();
	float outer = edge < row.v ? wide(row.x[edge]) : 0; /* on its way meanwhile, as column is */
	each_pack<VECTOR, false>(row, kept, [&](const pack<E> &p, int at) {
		if (KEEP) kept[(at - row.head) / N] = p;
		float logits[N];
#pragma unroll
		for (int j = 0; j < N; j++)
			logits[j] = p[j];
		mine.add(logits);
	});
	if (edge < row.v) mine.add<1>({outer});
	float top = row_reduce(mine.largest, larger(), largest);
	double sum = row_reduce(mine.sum * exponential(mine.largest - top), plus(), sums);
	if (threadIdx.x > 0) return;
	double most = top, at = s.before ? s.before[2 * s.n + i] : 0;
	if (s.before && s.before[s.n + i] > 0) {
		most = fmax(most, s.before[i]);
		sum = sum * exp(top - most) + s.before[s.n + i] * exp(s.before[i] - most);
	}
	if (column >= 0 && column < row.v) at = wide(row.x[column]);
	s.out[i] = most;
	s.out[s.n + i] = sum;
	s.out[2 * s.n + i] = at;
}

/* The numbers that make the gradient of row i: exp(logit - largest)·factor, and
 * scale·(p - 1) at the target, whose probability p may be close to 1. */
struct factors {
	float largest, factor, target;

	/* Thread 0 makes them of s.out, for the block. */
	__device__ __forceinline__ factors(const statistics &s, int i, double scale)
	{
		SHARED(float, known, [3]);
		if (threadIdx.x == 0) {
			double most = s.out[i], sum = s.out[s.n + i];
			known[0] = static_cast<float>(most);
			known[1] = static_cast<float>(scale / sum);
			known[2] = static_cast<float>(scale * (exp(s.out[2 * s.n + i] - most) / sum - 1));
		}
		__syncthreads();
		largest = known[0], factor = known[1], target = known[2];
	}
};

/* Overwrites a row, whose target is at column, with its gradient. With KEPT, kept
 * has its packs. */
template <bool VECTOR, bool KEPT, typename E>
__device__ __forceinline__ void gradient(const columns<E> &row, const pack<E> *kept, int column, const factors &f)
{
	const int N = width<E>;
	auto of = [&](float logit) { return exponential(logit - f.largest) * f.factor; };
	if (int edge = row.edge(); edge < row.v)
		row.x[edge] = narrow<E>(edge == column ? f.target : of(wide(row.x[edge])));
	each_pack<VECTOR, KEPT>(row, kept, [&](const pack<E> &p, int at) {
		float d[N];
#pragma unroll
		for (int j = 0; j < N; j++)
			d[j] = of(p[j]);
		if (at <= column && column < at + N) {
#pragma unroll
			for (int j = 0; j < N; j++)
				if (at + j == column) d[j] = f.target;
		}
		write<VECTOR>(row.x + row.head, at - row.head, row.body, pack<E>::of(d));
	});
}

template <typename E, bool VECTOR>
__global__ void __launch_bounds__(THREADS, 2) merge_rows(statistics s, E *logits, int v)
{
	merge<VECTOR, false>(s, blockIdx.x, columns<E>(logits, blockIdx.x, v), static_cast<pack<E> *>(nullptr));
}

/* s.out is given. */
template <typename E, bool VECTOR>
__global__ void __launch_bounds__(THREADS, 2) gradient_rows(statistics s, E *logits, double scale, int v)
{
	int i = blockIdx.x;
	gradient<VECTOR, false>(columns<E>(logits, i, v), static_cast<const pack<E> *>(nullptr), s.targets[i] - s.first,
		factors(s, i, scale));
}

template <typename E, bool VECTOR, bool KEEP>
__global__ void __launch_bounds__(THREADS, 2) cross_entropy_rows(statistics s, E *logits, double scale, int v)
{
	DYNAMIC_SHARED(pack<E>, kept);
	int i = blockIdx.x;
	columns<E> row(logits, i, v);
	merge<VECTOR, KEEP>(s, i, row, kept);
	gradient<VECTOR, KEEP>(row, kept, s.targets[i] - s.first, factors(s, i, scale));
}

/* *loss is Σ_n log(sum) + largest - target's logit: each thread adds a run of
 * rows in their order, then the runs are added, in an order that n fixes. */
__global__ void __launch_bounds__(1024) add_losses(double *loss, const double *stats, int n)
{
	SHARED(double, scratch, [32]);
	int run = (n + blockDim.x - 1) / blockDim.x, first = threadIdx.x * run, last = min(n, first + run);
	double sum = 0;
	for (int i = first; i < last; i++)
		sum += log(stats[n + i]) + (stats[i] - stats[2 * n + i]);
	sum = row_reduce(sum, plus(), scratch);
	if (threadIdx.x == 0) *loss = sum;
}

/* The column of the largest logit of a row. Keys order as logits do, of equal ones the first
 * column has the largest; no number has key 0. */
template <typename E> __global__ void __launch_bounds__(THREADS) likeliest_rows(int32_t *out, const E *logits, int v)
{
	SHARED(unsigned long long, scratch, [THREADS / 32]);
	const E *row = logits + static_cast<int64_t>(blockIdx.x) * v;
	unsigned long long best = 0;
	for (int j = threadIdx.x; j < v; j += blockDim.x) {
		float x = wide(row[j]) + 0.0f; /* -0 becomes 0 */
		unsigned bits = __float_as_uint(x), order = bits >> 31 ? ~bits : bits | 0x80000000u;
		if (x > -INFINITY) best = larger()(best, (static_cast<unsigned long long>(order) << 32) | (0xffffffffu - j));
	}
	best = row_reduce(best, larger(), scratch);
	if (threadIdx.x == 0) out[blockIdx.x] = best ? static_cast<int32_t>(0xffffffffu - static_cast<unsigned>(best)) : 0;
}

/* The threads of a row: one for each pack, if they may be as many. */
template <typename E> int row_threads(int v)
{
	int threads = 32;
	while (threads < THREADS && threads * width<E> < v)
		threads *= 2;
	return threads;
}

template <typename E> int32_t run_merge(void *stream, const statistics &s, const void *logits, int v)
{
	auto kernel = aligned(logits) ? merge_rows<E, true> : merge_rows<E, false>;
	LAUNCH(kernel, s.n, row_threads<E>(v), 0, stream, s, static_cast<E *>(const_cast<void *>(logits)), v);
	return launched();
}

template <typename E> int32_t run_gradient(void *stream, const statistics &s, void *logits, double scale, int v)
{
	auto kernel = aligned(logits) ? gradient_rows<E, true> : gradient_rows<E, false>;
	LAUNCH(kernel, s.n, row_threads<E>(v), 0, stream, s, static_cast<E *>(logits), scale, v);
	return launched();
}

template <typename E> int32_t run_likeliest(void *stream, int32_t *out, const void *logits, int n, int v)
{
	LAUNCH(likeliest_rows<E>, n, row_threads<E>(v), 0, stream, out, static_cast<const E *>(logits), v);
	return launched();
}

template <typename E>
int32_t run_cross_entropy(dynmo_cuda *k, void *stream, const statistics &s, void *logits, double scale, int v)
{
	int64_t bytes = parts(v, width<E>) * sizeof(pack<E>);
	bool keep = aligned(logits) && bytes + 1024 <= k->shared_bytes; /* a block has less than 1024 of its own */
	auto kernel = aligned(logits) ? cross_entropy_rows<E, true, false> : cross_entropy_rows<E, false, false>;
	if (keep) {
		kernel = cross_entropy_rows<E, true, true>;
		/* One limit for all v: a graph that was captured with more keeps its room. */
		const cudaFuncAttribute room = cudaFuncAttributeMaxDynamicSharedMemorySize;
		cudaError_t status = cudaFuncSetAttribute(kernel, room, k->shared_bytes - 1024);
		if (status != cudaSuccess) return static_cast<int32_t>(status);
	} else
		bytes = 0;
	LAUNCH(kernel, s.n, row_threads<E>(v), bytes, stream, s, static_cast<E *>(logits), scale, v);
	return launched();
}

} // namespace

int32_t dynmo_cuda_softmax_merge(dynmo_cuda *k, void *stream, double *out, const double *before, const void *logits,
	const int32_t *targets, int32_t n, int32_t v, int32_t first)
{
	if (n == 0) return 0;
	statistics s = {out, before, targets, n, first};
	return BY_TYPE(k, run_merge, stream, s, logits, v);
}

int32_t dynmo_cuda_softmax_gradient(dynmo_cuda *k, void *stream, void *logits, const double *stats,
	const int32_t *targets, double scale, int32_t n, int32_t v, int32_t first)
{
	if (n == 0 || v == 0) return 0;
	statistics s = {const_cast<double *>(stats), nullptr, targets, n, first};
	return BY_TYPE(k, run_gradient, stream, s, logits, scale, v);
}

int32_t dynmo_cuda_cross_entropy(dynmo_cuda *k, void *stream, double *loss, double *out, const double *before,
	void *logits, const int32_t *targets, double scale, int32_t n, int32_t v, int32_t first)
{
	if (n > 0) {
		statistics s = {out, before, targets, n, first};
		if (int32_t status = BY_TYPE(k, run_cross_entropy, k, stream, s, logits, scale, v)) return status;
	}
	LAUNCH(add_losses, 1, 1024, 0, stream, loss, out, n);
	return launched();
}

int32_t dynmo_cuda_likeliest(dynmo_cuda *k, void *stream, int32_t *out, const void *logits, int32_t n, int32_t v)
{
	if (n == 0) return 0;
	return BY_TYPE(k, run_likeliest, stream, out, logits, n, v);
}
