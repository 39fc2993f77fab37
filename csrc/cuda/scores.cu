/* The logits of a squashed router, and scores that balance experts, in float64: few
 * numbers next to what experts make of tokens. */
#include "reduce.cuh"

#include "pack.cuh"

namespace {

const int THREADS = 256;
const double LEAST_SHARE = 1e-200; /* as package kernel/ref has it */

__device__ __forceinline__ int64_t thread_index() { return static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x; }

template <typename E> __global__ void __launch_bounds__(THREADS) squash(double *u, E *squashed, const E *inp, int64_t all) {
	int64_t i = thread_index();
	if (i >= all) return;
	u[i] = tanh(static_cast<double>(wide(inp[i])));
	squashed[i] = narrow<E>(static_cast<float>(u[i]));
}

template <typename E>
__global__ void __launch_bounds__(THREADS) outer(double *logits, const double *u, const E *weight, int64_t all, int experts) {
	int64_t i = thread_index();
	if (i >= all) return;
	const double *row = u + i / experts * experts;
	const E *w = weight + i % experts * experts;
	double sum = 0;
	for (int j = 0; j < experts; j++) sum += static_cast<double>(wide(w[j])) * row[j];
	logits[i] = sum;
}

template <typename E>
__global__ void __launch_bounds__(THREADS)
squash_gradient(E *dinp, const E *dout, const E *inp, const E *weight, int64_t all, int experts) {
	int64_t i = thread_index();
	if (i >= all) return;
	const E *row = dout + i / experts * experts, *w = weight + i % experts;
	double sum = 0, u = tanh(static_cast<double>(wide(inp[i])));
	for (int k = 0; k < experts; k++)
		sum += static_cast<double>(wide(w[static_cast<size_t>(k) * experts])) * wide(row[k]);
	dinp[i] = narrow<E>(static_cast<float>(sum * (1 - u * u)));
}

/* Sets scores to the logits, or before, less the token's largest. sums gets, by block, the variances / n. */
template <typename E>
__global__ void __launch_bounds__(THREADS)
spread(double *scores, double *sums, const double *before, const E *logits, int n, int experts) {
	SHARED(double, scratch, [THREADS / 32]);
	int64_t t = thread_index();
	double variance = 0;
	if (t < n) {
		double *row = scores + t * experts, part = 1.0 / experts, largest = -INFINITY, mean = 0, square = 0;
		for (int e = 0; e < experts; e++) {
			row[e] = logits ? static_cast<double>(wide(logits[t * experts + e])) : before[t * experts + e];
			largest = fmax(largest, row[e]);
		}
		for (int e = 0; e < experts; e++) {
			row[e] -= largest;
			mean += row[e] * part;
			square += row[e] * row[e] * part;
		}
		variance = (square - mean * mean) / n;
	}
	double sum = row_reduce(variance, plus(), scratch);
	if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/* One block: what logits are stretched by, and scales of 1. */
__global__ void __launch_bounds__(THREADS) begin(double *stretch, double *scales, const double *sums, double deviation, int blocks, int experts) {
	SHARED(double, scratch, [THREADS / 32]);
	double sum = 0;
	for (int i = threadIdx.x; i < blocks; i += THREADS) sum += sums[i];
	for (int e = threadIdx.x; e < experts; e += THREADS) scales[e] = 1;
	double variance = row_reduce(sum, plus(), scratch);
	if (threadIdx.x == 0) *stretch = variance > 0 && deviation > 0 ? deviation / sqrt(variance) : 1;
}

__global__ void __launch_bounds__(THREADS) sharpen(double *scores, const double *stretch, int64_t all) {
	int64_t i = thread_index();
	if (i < all) scores[i] = exp(*stretch * scores[i]);
}

/* By token, what makes the sum of its scaled scores 1. */
__global__ void __launch_bounds__(THREADS)
even_rows(double *factors, const double *scores, const double *scales, int n, int experts) {
	int64_t t = thread_index();
	if (t >= n) return;
	double sum = 0;
	for (int e = 0; e < experts; e++) sum += scores[t * experts + e] * scales[e];
	factors[t] = 1 / sum;
}

/* Block e scales its expert to an equal share of all tokens. */
__global__ void __launch_bounds__(THREADS)
even_columns(double *scales, const double *scores, const double *factors, int n, int experts) {
	SHARED(double, scratch, [THREADS / 32]);
	double sum = 0;
	for (int t = threadIdx.x; t < n; t += THREADS) sum += scores[static_cast<size_t>(t) * experts + blockIdx.x] * factors[t];
	sum = row_reduce(sum, plus(), scratch);
	if (threadIdx.x == 0 && sum > LEAST_SHARE) scales[blockIdx.x] = static_cast<double>(n) / experts / sum;
}

__global__ void __launch_bounds__(THREADS) scale(double *scores, const double *scales, int64_t all, int experts) {
	int64_t i = thread_index();
	if (i < all) scores[i] *= scales[i % experts];
}

template <typename E>
int32_t run_squash(void *stream, double *router, void *squashed, const void *inp, const void *weight, int64_t all, int experts) {
	dim3 blocks(parts(all, THREADS));
	LAUNCH(squash<E>, blocks, THREADS, 0, stream, router + all, static_cast<E *>(squashed), static_cast<const E *>(inp), all);
	LAUNCH(outer<E>, blocks, THREADS, 0, stream, router, router + all, static_cast<const E *>(weight), all, experts);
	return launched();
}

template <typename E>
int32_t run_gradient(void *stream, void *dinp, const void *dout, const void *inp, const void *weight, int64_t all, int experts) {
	LAUNCH(squash_gradient<E>, dim3(parts(all, THREADS)), THREADS, 0, stream, static_cast<E *>(dinp),
		static_cast<const E *>(dout), static_cast<const E *>(inp), static_cast<const E *>(weight), all, experts);
	return launched();
}

template <typename E>
int32_t run_spread(void *stream, double *scores, double *sums, const double *before, const void *logits, int n, int experts) {
	LAUNCH(spread<E>, dim3(parts(n, THREADS)), THREADS, 0, stream, scores, sums, before, static_cast<const E *>(logits), n, experts);
	return launched();
}

} // namespace

int32_t dynmo_cuda_squash_logits(dynmo_cuda *k, void *stream, double *router, void *squashed, const void *inp,
	const void *weight, int32_t n, int32_t experts) {
	int64_t all = static_cast<int64_t>(n) * experts;
	if (all == 0) return 0;
	return BY_TYPE(k, run_squash, stream, router, squashed, inp, weight, all, experts);
}

int32_t dynmo_cuda_squash_gradient(dynmo_cuda *k, void *stream, void *dinp, const void *dout, const void *inp,
	const void *weight, int32_t n, int32_t experts) {
	int64_t all = static_cast<int64_t>(n) * experts;
	if (all == 0) return 0;
	return BY_TYPE(k, run_gradient, stream, dinp, dout, inp, weight, all, experts);
}

int32_t dynmo_cuda_balance_scores(
	dynmo_cuda *k, void *stream, double *router, const void *logits, double deviation, int32_t rounds, int32_t n, int32_t experts) {
	int64_t all = static_cast<int64_t>(n) * experts;
	if (all == 0) return 0;
	int tokens = static_cast<int>(parts(n, THREADS)), elements = static_cast<int>(parts(all, THREADS));
	void *work;
	int32_t status = workspace(k, (1 + static_cast<size_t>(experts) + tokens + n) * sizeof(double), &work);
	if (status) return status;
	double *stretch = static_cast<double *>(work), *scales = stretch + 1, *sums = scales + experts;
	double *factors = sums + tokens, *scores = router + all;
	status = BY_TYPE(k, run_spread, stream, scores, sums, router, logits, n, experts);
	if (status) return status;
	LAUNCH(begin, dim3(1), THREADS, 0, stream, stretch, scales, sums, deviation, tokens, experts);
	LAUNCH(sharpen, dim3(elements), THREADS, 0, stream, scores, stretch, all);
	for (int round = 0; round < rounds; round++) {
		LAUNCH(even_rows, dim3(tokens), THREADS, 0, stream, factors, scores, scales, n, experts);
		LAUNCH(even_columns, dim3(experts), THREADS, 0, stream, scales, scores, factors, n, experts);
	}
	LAUNCH(scale, dim3(elements), THREADS, 0, stream, scores, scales, all, experts);
	return launched();
}
