/* Memory sixteen bytes at a time. A thread reads and writes packs of elements;
 * which thread has which pack depends on shapes only, so that sums have one
 * order wherever operands lie: operands that are not aligned move the same packs
 * element by element. Which of the two a kernel does is its template argument
 * VECTOR, so that several loads are in flight with no branch between them. */
#ifndef DYNMO_PACK_CUH
#define DYNMO_PACK_CUH

#include <string.h>

#include "device.cuh"

template <typename E> constexpr int width = 16 / sizeof(E); /* elements of a pack */

/* N elements side by side. Those of bf16 stay two to a word, as they come: a
 * register each would be twice as many. */
template <typename E, int N = width<E>> struct pack;

template <int N> struct alignas(N < 4 ? 4 * N : 16) pack<float, N> {
	float words[N];

	__device__ __forceinline__ float operator[](int j) const { return words[j]; }
	__device__ __forceinline__ static pack of(const float (&x)[N])
	{
		pack p;
#pragma unroll
		for (int j = 0; j < N; j++)
			p.words[j] = x[j];
		return p;
	}
};

template <int N> struct alignas(N < 8 ? 2 * N : 16) pack<bf16, N> {
	uint32_t words[N / 2];

	__device__ __forceinline__ float operator[](int j) const
	{
		return __uint_as_float(j % 2 ? words[j / 2] & 0xffff0000 : words[j / 2] << 16);
	}
	__device__ __forceinline__ static pack of(const float (&x)[N])
	{
		pack p;
#pragma unroll
		for (int j = 0; j < N / 2; j++) {
			__nv_bfloat162 pair = __floats2bfloat162_rn(x[2 * j], x[2 * j + 1]);
			memcpy(&p.words[j], &pair, sizeof pair);
		}
		return p;
	}
};

/* read returns elements [at, at + N) of x, 0 for those from end on. With
 * VECTOR, end is where a pack begins. */
template <bool VECTOR, int N, typename E> __device__ __forceinline__ pack<E, N> read(const E *x, int at, int end)
{
	if constexpr (VECTOR) {
		pack<E, N> p = {};
		if (at < end) p = *reinterpret_cast<const pack<E, N> *>(x + at);
		return p;
	} else {
		float elements[N];
#pragma unroll
		for (int j = 0; j < N; j++)
			elements[j] = at + j < end ? wide(x[at + j]) : 0;
		return pack<E, N>::of(elements);
	}
}

/* write sets elements [at, at + N) of x, those from end on excepted. */
template <bool VECTOR, typename E, int N>
__device__ __forceinline__ void write(E *x, int at, int end, const pack<E, N> &p)
{
	if constexpr (VECTOR) {
		if (at < end) *reinterpret_cast<pack<E, N> *>(x + at) = p;
	} else {
#pragma unroll
		for (int j = 0; j < N; j++)
			if (at + j < end) x[at + j] = narrow<E>(p[j]);
	}
}

/* aligned says whether packs can begin at all these pointers. */
template <typename... P> bool aligned(P... p) { return ((reinterpret_cast<uintptr_t>(p) % 16 == 0) && ...); }

/* rows_aligned says whether packs can begin at all rows of c elements of E, of
 * matrices that begin at these pointers. */
template <typename E, typename... P> bool rows_aligned(int c, P... p) { return c % width<E> == 0 && aligned(p...); }

/* parts is the number of parts of size each that hold items. */
inline int64_t parts(int64_t items, int64_t each) { return (items + each - 1) / each; }

#endif
