/* Hopper's own instructions (compute capability 9.0, sm_90a), by PTX: the copy engine, the
 * barriers in shared memory that it completes, and products by groups of four warps. With
 * DYNMO_EMULATE their meaning stands in csrc/emulate/hopper.h.
 *
 * Matrices of bfloat16 in shared memory are panels: rows of 64 elements, 128 bytes, from
 * an address that is a multiple of 1024 on; the 16 bytes c of row r lie at c ^ (r % 8), so
 * that neither rows nor columns meet in one bank. */
#ifndef DYNMO_HOPPER_CUH
#define DYNMO_HOPPER_CUH

#include "mma.cuh"

constexpr int PANEL = 64;          /* elements of a row */
constexpr int GROUP_THREADS = 128; /* of four warps that multiply together */

#ifdef DYNMO_EMULATE
#include "../emulate/hopper.h"
#else
#include <cuda.h>

using tensor_map = CUtensorMap;

/* A barrier: a phase of it ends when as many arrivals and bytes as it expects have come.
 * Phases have parity 0, 1, 0… One thread sets it up, and all meet before they use it. */
__device__ __forceinline__ void barrier_open(uint64_t *barrier, int arrivals) {
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

/* Lets the copy engine see the barriers that this thread has set up. */
__device__ __forceinline__ void barriers_opened() {
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t *barrier) {
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/* Arrives, and has the phase wait for bytes that copy_box brings. */
__device__ __forceinline__ void barrier_expect(uint64_t *barrier, int bytes) {
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
	             : "memory");
}

/* Waits until the phase of this parity is over, which is the current one or the last;
 * before the first, that of parity 1 is. */
__device__ __forceinline__ void barrier_wait(uint64_t *barrier, int parity) {
	asm volatile("{\n"
	             ".reg .pred over;\n"
	             "again:\n"
	             "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
	             "@!over bra again;\n"
	             "}" ::"r"(shared_address(barrier)), "r"(parity)
	             : "memory");
}

/* Begins to copy a box of the map, from this channel and row on, to a panel; the barrier
 * gets its bytes. Rows that the matrix does not have are zeros. One thread calls it. */
__device__ __forceinline__ void copy_box(void *to, const tensor_map &map, int channel, int row, uint64_t *barrier) {
	asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
	             ::"r"(shared_address(to)), "l"(&map), "r"(channel), "r"(row), "r"(shared_address(barrier))
	             : "memory");
}

/* The threads that name this number, 1 to 15, wait for one another. */
__device__ __forceinline__ void threads_meet(int number, int threads) {
	asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* Arrives where threads meet by a number, and goes on. */
__device__ __forceinline__ void threads_pass(int number, int threads) {
	asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* Lets products and copies see what this thread has written to shared memory. */
__device__ __forceinline__ void publish_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* Takes registers for each thread of a group, or gives all but these back; each group
 * does one of the two, once. */
template <int REGISTERS> __device__ __forceinline__ void take_registers() {
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS> __device__ __forceinline__ void give_registers() {
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/* Waits until a counter in global memory is at count, and sees what was written before. */
__device__ __forceinline__ void wait_for_count(const int *counter, int count) {
	int at;
	do asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(at) : "l"(counter) : "memory");
	while (at != count);
}

/* Counts one more, for those that wait to see what was written before. */
__device__ __forceinline__ void count_one(int *counter) {
	asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
}

/* Begins to write, or to add, `count` float4 of shared memory to global memory. The caller has
 * acquired earlier writes there. */
__device__ __forceinline__ void send_floats(float4 *to, const float4 *from, int count, bool add) {
	asm volatile("fence.proxy.async;" ::: "memory");
	if (add)
		asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
		             ::"l"(to), "r"(shared_address(from)), "r"(16 * count) : "memory");
	else
		asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
		             ::"l"(to), "r"(shared_address(from)), "r"(16 * count) : "memory");
	asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until the floats that the thread sends are read from shared memory. */
__device__ __forceinline__ void floats_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

/* Waits until the floats are in global memory. count_one may then tell others. */
__device__ __forceinline__ void floats_written() {
	asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
	asm volatile("fence.proxy.async;" ::: "memory");
}

/* Products of a group, which all its threads begin together, after this; */
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/* closes the products since the last one; */
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/* waits until at most the last PENDING of those closed are under way. */
template <int PENDING> __device__ __forceinline__ void products_wait() {
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* Keeps the compiler from moving accesses to d across this point. */
template <int N> __device__ __forceinline__ void pin_registers(float (&d)[N][4]) {
#pragma unroll
	for (int i = 0; i < N; i++)
#pragma unroll
		for (int j = 0; j < 4; j++) asm volatile("" : "+f"(d[i][j])::"memory");
}

/* The same for the registers of an operand: their values are complete at this point. */
template <int N> __device__ __forceinline__ void pin_registers(uint32_t (&a)[N][4]) {
#pragma unroll
	for (int i = 0; i < N; i++)
#pragma unroll
		for (int j = 0; j < 4; j++) asm volatile("" : "+r"(a[i][j])::"memory");
}

/* A panel as operand; `next` is the bytes from panel to panel, for a transposed one of more
 * than 64 columns (PTX ISA, "Matrix Descriptor Format", with 128-byte swizzling). */
__device__ __forceinline__ uint64_t matrix_of(const void *panel, int next) {
	return static_cast<uint64_t>(1) << 62 | static_cast<uint64_t>(1024 / 16) << 32 |
		static_cast<uint64_t>(next / 16) << 16 | (shared_address(panel) & 0x3ffff) >> 4;
}

#define OUT4(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define OUT16(i) OUT4(i), OUT4(i + 1), OUT4(i + 2), OUT4(i + 3)
#define OUT32 OUT16(0), OUT16(4)
#define OUT64 OUT32, OUT16(8), OUT16(12)
#define TEXT16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define TEXT32 TEXT16 \
	",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define TEXT64 TEXT32 \
	",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                                                                              \
	"%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define PRODUCT(n, text, a, b, add, transposed, out, ...)                                                              \
	asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " add ", 0;\n"                                                \
	             "wgmma.mma_async.sync.aligned.m64n" n "k16.f32.bf16.bf16 {" text "}, " a ", " b ", adds, 1, 1, "      \
	             transposed ";\n}"                                                                                     \
	             : out                                                                                                 \
	             : __VA_ARGS__)

/* d (64, N) = a (64, 16) · b (16, N) + d, or without d unless add. The 16 lie side by side
 * in an operand's rows, or transposed one row below the other. d is as mma.cuh has D,
 * 16 rows a warp. */
template <int N, int A_TRANSPOSED, int B_TRANSPOSED>
__device__ __forceinline__ void multiply(float (&d)[N / 8][4], uint64_t a, uint64_t b, bool add) {
	static_assert(N == 64 || N == 128, "a width that is written here");
#define OPERANDS "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(A_TRANSPOSED), "n"(B_TRANSPOSED)
	if constexpr (N == 64) PRODUCT("64", TEXT32, "%32", "%33", "%34", "%35, %36", OUT32, OPERANDS);
	if constexpr (N == 128) PRODUCT("128", TEXT64, "%64", "%65", "%66", "%67, %68", OUT64, OPERANDS);
#undef OPERANDS
}

/* The same with a in registers, as mma.cuh has A. */
template <int N, int B_TRANSPOSED>
__device__ __forceinline__ void multiply(float (&d)[N / 8][4], const uint32_t (&a)[4], uint64_t b, bool add) {
	static_assert(N == 64 || N == 128, "a width that is written here");
#define OPERANDS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)), "n"(B_TRANSPOSED)
	if constexpr (N == 64) PRODUCT("64", TEXT32, "{%32,%33,%34,%35}", "%36", "%37", "%38", OUT32, OPERANDS);
	if constexpr (N == 128) PRODUCT("128", TEXT64, "{%64,%65,%66,%67}", "%68", "%69", "%70", OUT64, OPERANDS);
#undef OPERANDS
}

#undef OUT4
#undef OUT16
#undef OUT32
#undef OUT64
#undef TEXT16
#undef TEXT32
#undef TEXT64
#undef PRODUCT
#endif

/* The number of the thread's group, so that the compiler knows that a warp has one: what
 * follows from it then needs one register of a warp, where products want their operands. */
__device__ __forceinline__ int my_group() {
	return __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / GROUP_THREADS, 0);
}

/* Sets *map to boxes of box_rows rows of 64 channels of matrix (rows, columns): bfloat16,
 * aligned to 16 bytes, columns a multiple of 8. */
int32_t tensor_map_of(tensor_map *map, const bf16 *matrix, int64_t rows, int64_t columns, int box_rows);

#endif
