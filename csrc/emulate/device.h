/* CUDA C++ on the host, for kernels of csrc/cuda compiled by g++ with
 * DYNMO_EMULATE. Nothing here is a GPU. The threads of a block are fibers of one
 * host thread, and blocks run one after another. A process runs one kernel at a
 * time, so shared memory can be static. The emulator finds wrong results, accesses
 * outside an allocation and reads of memory before its first write (memory begins
 * as NaN). It also finds barriers that some thread never reaches, and barriers
 * that are missing, under another DYNMO_EMULATE_ORDER. */
#ifndef DYNMO_EMULATE_DEVICE_H
#define DYNMO_EMULATE_DEVICE_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <vector_types.h>

/* Only nvcc has a use for them. */
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace emulate {

/* A launch: its shape, and what each thread of it does. */
struct Kernel {
	const char *name;
	dim3 grid, block;
	size_t shared; /* bytes of dynamic shared memory */
	virtual void thread() = 0;
	virtual ~Kernel() = default;
};

template <typename... P> struct Bound : Kernel {
	void (*function)(P...);
	std::tuple<P...> operands;
	template <typename... A>
	explicit Bound(void (*f)(P...), A &&...a) : function(f), operands(std::forward<A>(a)...) {}
	void thread() override { std::apply(function, operands); }
};

/* Runs all blocks of a kernel. */
void run(Kernel &kernel);

/* Puts a kernel, which it deletes afterwards, on a stream; checks its shape as
 * CUDA does, and keeps an error for cudaGetLastError. function is its identity. */
void enqueue(Kernel *kernel, const void *function, void *stream);

template <typename... P, typename... A>
void launch(const char *name, void (*function)(P...), dim3 grid, dim3 block, size_t shared, void *stream,
            A &&...operands)
{
	Kernel *kernel = new Bound<P...>(function, std::forward<A>(operands)...);
	kernel->name = name;
	kernel->grid = grid;
	kernel->block = block;
	kernel->shared = shared;
	enqueue(kernel, reinterpret_cast<const void *>(function), stream);
}

/* Dynamic shared memory of the block that runs. */
extern unsigned char *dynamic_shared;

/* Static shared memory holds NaN when a block first comes to its declaration. */
extern uint64_t block_number; /* of all blocks of the process, from 1 */

/* Whether a thread of the block has asynchronous copies that it has not waited for; null
 * where no kernel copies so. */
extern bool (*copies_left)();
template <typename T> void poison(T &shared, uint64_t &seen)
{
	if (seen != block_number)
		std::memset(static_cast<void *>(&shared), 0xff, sizeof shared);
	seen = block_number;
}

/* An exchange among the lanes of a warp: values are in given until all lanes have
 * put theirs, then in taken, so that one wait is enough. */
constexpr size_t slot_bytes = 64;
struct alignas(64) Exchange {
	unsigned char given[32 * slot_bytes], taken[32 * slot_bytes];
};
Exchange &exchange(); /* of the warp that runs */
void sync_block();
void sync_warp(unsigned mask, size_t bytes); /* of one lane's value */
void wait_until(bool (*is)(const void *, unsigned), const void *what, unsigned how); /* until is(what, how) */
inline unsigned lane()
{
	return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % warpSize;
}

/* gather takes one value of every lane in mask and returns them by lane. They stay
 * until the lane's next warp operation. Lanes that do not exist give NaN bytes. */
template <typename T> const T *gather(unsigned mask, const T &mine)
{
	static_assert(sizeof(T) <= slot_bytes && std::is_trivially_copyable<T>::value, "a small plain value");
	Exchange &warp = exchange();
	reinterpret_cast<T *>(warp.given)[lane()] = mine;
	sync_warp(mask, sizeof(T));
	return reinterpret_cast<const T *>(warp.taken);
}

} // namespace emulate

#define LAUNCH(kernel, grid, block, bytes, stream, ...)                                                                \
	emulate::launch(#kernel, kernel, grid, block, bytes, stream, ##__VA_ARGS__)

#define SHARED(type, name, ...)                                                                                        \
	static type name __VA_ARGS__;                                                                                      \
	static uint64_t name##_seen;                                                                                       \
	emulate::poison(name, name##_seen)

#define DYNAMIC_SHARED(type, name) type *name = reinterpret_cast<type *>(emulate::dynamic_shared)

/* Barriers. */
inline void __syncthreads() { emulate::sync_block(); }
inline void __syncwarp(unsigned mask = 0xffffffff) { emulate::sync_warp(mask, 0); }
inline void __threadfence() {}
inline void __threadfence_block() {}

/* Shuffles among segments of width lanes; from outside a segment a lane gets its own. */
template <typename T> T __shfl_sync(unsigned mask, T mine, int source, int width = 32)
{
	const T *all = emulate::gather(mask, mine);
	return all[(emulate::lane() & ~(width - 1)) | (source & (width - 1))];
}
template <typename T> T __shfl_xor_sync(unsigned mask, T mine, int bits, int width = 32)
{
	const T *all = emulate::gather(mask, mine);
	unsigned lane = emulate::lane(), source = lane ^ bits;
	return all[source <= (lane | (width - 1)) ? source : lane];
}
template <typename T> T __shfl_down_sync(unsigned mask, T mine, unsigned by, int width = 32)
{
	const T *all = emulate::gather(mask, mine);
	unsigned lane = emulate::lane();
	return all[lane + by <= (lane | (width - 1)) ? lane + by : lane];
}
template <typename T> T __shfl_up_sync(unsigned mask, T mine, unsigned by, int width = 32)
{
	const T *all = emulate::gather(mask, mine);
	unsigned lane = emulate::lane();
	return all[(lane & (width - 1)) >= by ? lane - by : lane];
}

/* Votes. */
inline unsigned __ballot_sync(unsigned mask, int predicate)
{
	struct Vote {
		int8_t yes; /* 1, 0, or -1 where there is no lane */
	};
	const Vote *all = emulate::gather(mask, Vote{static_cast<int8_t>(predicate != 0)});
	unsigned votes = 0;
	for (int i = 0; i < warpSize; i++)
		votes |= static_cast<unsigned>((mask >> i & 1) && all[i].yes == 1) << i;
	return votes;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

/* Atomics of integers; those of floats are missing on purpose. */
template <typename T> using Integer = typename std::enable_if<std::is_integral<T>::value, T>::type;
template <typename T> using Operand = typename std::common_type<T>::type;
template <typename T> Integer<T> atomicExch(T *at, Operand<T> x)
{
	T old = *at;
	*at = x;
	return old;
}
template <typename T> Integer<T> atomicAdd(T *at, Operand<T> x) { return atomicExch(at, *at + x); }
template <typename T> Integer<T> atomicSub(T *at, Operand<T> x) { return atomicExch(at, *at - x); }
template <typename T> Integer<T> atomicMax(T *at, Operand<T> x) { return atomicExch(at, *at > x ? *at : x); }
template <typename T> Integer<T> atomicMin(T *at, Operand<T> x) { return atomicExch(at, *at < x ? *at : x); }
template <typename T> Integer<T> atomicOr(T *at, Operand<T> x) { return atomicExch(at, *at | x); }
template <typename T> Integer<T> atomicAnd(T *at, Operand<T> x) { return atomicExch(at, *at & x); }
template <typename T> Integer<T> atomicCAS(T *at, Operand<T> compare, Operand<T> x)
{
	return atomicExch(at, *at == compare ? x : *at);
}

/* Loads and stores that say how to cache. */
template <typename T> T __ldg(const T *at) { return *at; }
template <typename T> T __ldcg(const T *at) { return *at; }
template <typename T> T __ldcs(const T *at) { return *at; }
template <typename T> void __stcg(T *at, Operand<T> x) { *at = x; }
template <typename T> void __stcs(T *at, Operand<T> x) { *at = x; }

/* Integers. */
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
template <typename A, typename B> typename std::common_type<A, B>::type min(A a, B b) { return b < a ? b : a; }
template <typename A, typename B> typename std::common_type<A, B>::type max(A a, B b) { return a < b ? b : a; }

/* The same bits as another type. */
template <typename To, typename From> To emulate_bits(From x)
{
	static_assert(sizeof(To) == sizeof(From), "as wide");
	To y;
	std::memcpy(&y, &x, sizeof y);
	return y;
}
inline unsigned __float_as_uint(float x) { return emulate_bits<unsigned>(x); }
inline int __float_as_int(float x) { return emulate_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return emulate_bits<float>(x); }
inline float __int_as_float(int x) { return emulate_bits<float>(x); }
inline long long __double_as_longlong(double x) { return emulate_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return emulate_bits<double>(x); }

/* Arithmetic. The fast functions are exact here, where a GPU's are not. glibc
 * declares __expf and its like for itself. */
#define __expf expf
#define __exp10f exp10f
#define __logf logf
#define __log2f log2f
#define __powf powf
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline int __float2int_rn(float x) { return static_cast<int>(rintf(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline int __float2int_rd(float x) { return static_cast<int>(floorf(x)); }
inline int __float2int_ru(float x) { return static_cast<int>(ceilf(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }

/* The templates that nvcc's cuda_runtime.h adds to the C functions. */
template <typename T> cudaError_t cudaFuncSetAttribute(T *function, cudaFuncAttribute attribute, int value)
{
	return cudaFuncSetAttribute(reinterpret_cast<const void *>(function), attribute, value);
}
template <typename T> cudaError_t cudaMalloc(T **memory, size_t bytes)
{
	return cudaMalloc(reinterpret_cast<void **>(memory), bytes);
}

#endif
