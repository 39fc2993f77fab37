/* Calls that work on elements one by one. A thread has one pack of each operand;
 * bound by memory: add moves 3·n elements, gelu_forward 2·n, gelu_backward 3·n. */
#include "pack.cuh"

namespace {

const int THREADS = 256;

/* sigmoid(2u) with u = sqrt(2/π)·(x + 0.044715·x³): the tanh form of GELU is
 * x·sigmoid(2u), for 1 + tanh u = 2·sigmoid(2u). */
const float SLOPE = 1.5957691216057308f; /* 2·sqrt(2/π) */
const float CUBIC = 0.044715f;

__device__ __forceinline__ float gate(float x) { return __fdividef(1, 1 + __expf(-SLOPE * x * (1 + CUBIC * x * x))); }

struct gelu {
	__device__ __forceinline__ float operator()(float x, float) const { return x * gate(x); }
};

struct gelu_slope {
	__device__ __forceinline__ float operator()(float x, float dout) const
	{
		float s = gate(x);
		return dout * (s + x * s * (1 - s) * SLOPE * (1 + 3 * CUBIC * x * x));
	}
};

struct sum {
	__device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};

/* out = op(a, b). out may be a or b. */
template <typename E, typename OP>
__global__ void __launch_bounds__(THREADS) pointwise(E *out, const E *a, const E *b, OP op, int64_t n, bool vector)
{
	const int N = width<E>;
	int64_t at = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * N;
	if (vector && at + N <= n) {
		pack<E> x = read<true, N>(a + at, 0, N), y = read<true, N>(b + at, 0, N);
		float result[N];
#pragma unroll
		for (int j = 0; j < N; j++)
			result[j] = op(x[j], y[j]);
		write<true>(out + at, 0, N, pack<E>::of(result));
		return;
	}
	for (int64_t i = at; i < n && i < at + N; i++)
		out[i] = narrow<E>(op(wide(a[i]), wide(b[i])));
}

template <typename E, typename OP>
int32_t run(void *stream, OP op, void *out, const void *a, const void *b, int64_t n)
{
	if (n == 0) return 0;
	LAUNCH((pointwise<E, OP>), parts(n, THREADS * width<E>), THREADS, 0, stream, static_cast<E *>(out),
		static_cast<const E *>(a), static_cast<const E *>(b), op, n, aligned(out, a, b));
	return launched();
}

/* out (n), bfloat16, is x rounded. */
__global__ void __launch_bounds__(THREADS) rounding(bf16 *out, const float *x, int64_t n, bool vector)
{
	const int N = width<bf16>;
	int64_t at = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * N;
	if (vector && at + N <= n) {
		pack<float> low = read<true, N / 2>(x + at, 0, N), high = read<true, N / 2>(x + at + N / 2, 0, N);
		float both[N];
#pragma unroll
		for (int j = 0; j < N / 2; j++) {
			both[j] = low[j];
			both[j + N / 2] = high[j];
		}
		write<true>(out + at, 0, N, pack<bf16>::of(both));
		return;
	}
	for (int64_t i = at; i < n && i < at + N; i++)
		out[i] = narrow<bf16>(x[i]);
}

/* out = a + b, or b where there is no a. out may be a. */
__global__ void __launch_bounds__(THREADS) accumulate_rounded(float *out, const float *a, const bf16 *b, int64_t n, bool vector)
{
	const int N = width<float>;
	int64_t at = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * N;
	if (vector && at + N <= n) {
		pack<float> x = {};
		if (a) x = read<true, N>(a + at, 0, N);
		pack<bf16, N> y = read<true, N>(b + at, 0, N);
		float result[N];
#pragma unroll
		for (int j = 0; j < N; j++)
			result[j] = a ? x[j] + y[j] : y[j];
		write<true>(out + at, 0, N, pack<float>::of(result));
		return;
	}
	for (int64_t i = at; i < n && i < at + N; i++)
		out[i] = a ? a[i] + wide(b[i]) : wide(b[i]);
}

} // namespace

int32_t dynmo_cuda_gelu_forward(dynmo_cuda *k, void *stream, void *out, const void *inp, int64_t n)
{
	return BY_TYPE(k, run, stream, gelu(), out, inp, inp, n);
}

int32_t dynmo_cuda_gelu_backward(dynmo_cuda *k, void *stream, void *dinp, const void *inp, const void *dout, int64_t n)
{
	return BY_TYPE(k, run, stream, gelu_slope(), dinp, inp, dout, n);
}

int32_t dynmo_cuda_add(dynmo_cuda *k, void *stream, void *out, const void *a, const void *b, int64_t n)
{
	return BY_TYPE(k, run, stream, sum(), out, a, b, n);
}

int32_t dynmo_cuda_accumulate(dynmo_cuda *, void *stream, float *out, const float *a, const float *b, int64_t n)
{
	return run<float>(stream, sum(), out, a, b, n);
}

int32_t dynmo_cuda_round(dynmo_cuda *, void *stream, void *out, const float *x, int64_t n)
{
	if (n == 0) return 0;
	LAUNCH(rounding, parts(n, THREADS * width<bf16>), THREADS, 0, stream, static_cast<bf16 *>(out), x, n, aligned(out, x));
	return launched();
}

int32_t dynmo_cuda_accumulate_rounded(dynmo_cuda *, void *stream, float *out, const float *a, const void *b, int64_t n)
{
	if (n == 0) return 0;
	LAUNCH(accumulate_rounded, parts(n, THREADS * width<float>), THREADS, 0, stream, out, a, static_cast<const bf16 *>(b), n,
		aligned(out, a, b));
	return launched();
}
