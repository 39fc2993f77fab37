/* The norm of a gradient, and the update of weights from it.
 *
 * sum_squares reads 4·n bytes. adamw moves 28·n bytes for float weights, 30·n
 * for bf16: a thread has four elements, so that its loads of the gradient, the
 * moments and the weights are in flight together. One launch does a whole slab. */
#include <math.h>

#include "pack.cuh"
#include "reduce.cuh"

namespace {

const int THREADS = 256;
const int BLOCK = 4096; /* elements that a block of threads adds: kernel.SquareBlock */

/* A thread's share of Σ x² over end elements, in double: the square of a float is exact. */
template <bool VECTOR> __device__ __forceinline__ double squares(const float *x, int end)
{
	const int N = width<float>;
	double sum = 0;
#pragma unroll 4
	for (int at = threadIdx.x * N; at < end; at += THREADS * N) {
		pack<float> p = read<VECTOR, N>(x, at, end);
#pragma unroll
		for (int j = 0; j < N; j++)
			sum += static_cast<double>(p[j]) * p[j];
	}
	return sum;
}

/* sums[b] is Σ x² over block b. */
__global__ void __launch_bounds__(THREADS) square_blocks(double *sums, const float *x, int64_t n, bool vector)
{
	SHARED(double, scratch, [THREADS / 32]);
	int64_t first = static_cast<int64_t>(blockIdx.x) * BLOCK;
	int end = static_cast<int>(min(n - first, static_cast<int64_t>(BLOCK)));
	double sum = vector && end == BLOCK ? squares<true>(x + first, end) : squares<false>(x + first, end);
	sum = row_reduce(sum, plus(), scratch);
	if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/* The settings of an update, 1 - beta and the corrections rounded once. */
struct settings {
	float lr, beta1, rest1, beta2, rest2, eps, decay, scale, correction1, correction2;
};

/* Updates one weight and its moments from the gradient g. */
__device__ __forceinline__ void update(float &w, float &m, float &v, float g, float decay, const settings &a)
{
	g *= a.scale;
	m = fmaf(a.beta1, m, a.rest1 * g);
	v = fmaf(a.beta2, v, a.rest2 * g * g);
	w -= a.lr * (m * a.correction1 / (sqrtf(v * a.correction2) + a.eps) + decay * w);
}

/* master is w itself if E is float. */
template <typename E>
__global__ void __launch_bounds__(THREADS)
adamw(E *w, float *master, float *m, float *v, const float *g, int64_t n, int64_t decayed, settings a, bool vector)
{
	const int N = 4;
	int64_t at = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * N;
	if (vector && at + N <= n) {
		pack<float> weight = read<true, N>(master + at, 0, N), first = read<true, N>(m + at, 0, N);
		pack<float> second = read<true, N>(v + at, 0, N), gradient = read<true, N>(g + at, 0, N);
#pragma unroll
		for (int j = 0; j < N; j++) {
			float decay = at + j < decayed ? a.decay : 0;
			update(weight.words[j], first.words[j], second.words[j], gradient[j], decay, a);
		}
		write<true>(master + at, 0, N, weight);
		write<true>(m + at, 0, N, first);
		write<true>(v + at, 0, N, second);
		if constexpr (sizeof(E) < sizeof(float)) write<true>(w + at, 0, N, pack<E, N>::of(weight.words));
		return;
	}
	for (int64_t i = at; i < n && i < at + N; i++) {
		update(master[i], m[i], v[i], g[i], i < decayed ? a.decay : 0, a);
		w[i] = narrow<E>(master[i]);
	}
}

template <typename E>
int32_t run_adamw(void *stream, void *w, float *master, float *m, float *v, const float *g, int64_t n, int64_t decayed,
	const settings &a)
{
	if constexpr (sizeof(E) == sizeof(float)) master = static_cast<float *>(w);
	LAUNCH(adamw<E>, parts(n, THREADS * 4), THREADS, 0, stream, static_cast<E *>(w), master, m, v, g, n, decayed, a,
		aligned(w, master, m, v, g));
	return launched();
}

} // namespace

int32_t dynmo_cuda_sum_squares(dynmo_cuda *, void *stream, double *out, const float *x, int64_t n)
{
	if (n > 0) LAUNCH(square_blocks, parts(n, BLOCK), THREADS, 0, stream, out, x, n, aligned(x));
	return launched();
}

int32_t dynmo_cuda_adamw(dynmo_cuda *k, void *stream, void *w, float *master, float *m, float *v, const float *g,
	int64_t n, int64_t decayed, double lr, double beta1, double beta2, double eps, double decay, double scale,
	int32_t step)
{
	if (n == 0) return 0;
	settings a = {static_cast<float>(lr), static_cast<float>(beta1), static_cast<float>(1 - beta1),
		static_cast<float>(beta2), static_cast<float>(1 - beta2), static_cast<float>(eps), static_cast<float>(decay),
		static_cast<float>(scale), static_cast<float>(1 / (1 - pow(beta1, step))),
		static_cast<float>(1 / (1 - pow(beta2, step)))};
	return BY_TYPE(k, run_adamw, stream, w, master, m, v, g, n, decayed, a);
}
