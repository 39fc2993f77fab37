/* The instructions of a warp that CUDA C++ has no name for, by PTX; nothing else
 * in csrc/cuda is written in it. All 32 lanes call the warp-wide ones together.
 *
 * Fragments of mma.m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"), in
 * lane 4g+t, g in [0, 8), t in [0, 4); a register holds two neighbours, the
 * lower one in its lower half:
 *
 *   A (16 rows, 16 k)  a[0] row g   k 2t, 2t+1      a[2] row g   k 2t+8, 2t+9
 *                      a[1] row g+8 k 2t, 2t+1      a[3] row g+8 k 2t+8, 2t+9
 *   B (16 k, 8 columns)  b0 k 2t, 2t+1  column g    b1 k 2t+8, 2t+9  column g
 *   D (16 rows, 8 columns)  d[0], d[1] row g   columns 2t, 2t+1
 *                           d[2], d[3] row g+8 columns 2t, 2t+1
 *
 * So two neighbouring D (16 x 16), packed, are an A. */
#ifndef DYNMO_MMA_CUH
#define DYNMO_MMA_CUH

#include "device.cuh"

#ifdef DYNMO_EMULATE
#include "../emulate/mma.h"
#else

__device__ __forceinline__ uint32_t shared_address(const void *p) {
	return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/* threadIdx.x and blockIdx.x, read anew at every call: what an earlier one led to need
 * not stay in registers up to here. */
__device__ __forceinline__ int thread_again() {
	int thread;
	asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
	return thread;
}
__device__ __forceinline__ int block_again() {
	int block;
	asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
	return block;
}

/* d += a·b, bf16 in, float out. */
__device__ __forceinline__ void mma_bf16_16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
	             "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
	             : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
	             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four 8x8 matrices of 2-byte elements. Lane 8i+j names row j of matrix i, 16
 * aligned bytes of shared memory; lane 4g+t receives in r[i] the elements 2t and
 * 2t+1 of row g of matrix i. */
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const bf16 *row) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
	             : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
	             : "r"(shared_address(row)));
}

/* The same of the transposed matrices: rows 2t and 2t+1 of column g. */
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const bf16 *row) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
	             : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
	             : "r"(shared_address(row)));
}

/* Copies 16 aligned bytes from global to shared memory past the registers and
 * the first-level cache, or writes zeros there and reads nothing. */
__device__ __forceinline__ void cp_async_16(void *to, const void *from, bool inside) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
	             "r"(inside ? 16 : 0)
	             : "memory");
}

/* The same of 4 and of 8 bytes, through the first-level cache. */
__device__ __forceinline__ void cp_async_4(void *to, const void *from, bool inside) {
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
	             "r"(inside ? 4 : 0)
	             : "memory");
}
__device__ __forceinline__ void cp_async_8(void *to, const void *from, bool inside) {
	asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(to)), "l"(from),
	             "r"(inside ? 8 : 0)
	             : "memory");
}

/* Closes the group of this thread's copies since the last commit. */
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Waits until at most the last GROUPS of this thread's groups are under way.
 * Other threads see the copies after a barrier. */
template <int GROUPS> __device__ __forceinline__ void cp_async_wait() {
	asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}

/* low and high as two bf16 in a register, rounded to nearest even. */
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
	uint32_t packed;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
	return packed;
}

/* 2^x to 2^-22, with 0 for what is below the normal numbers: one instruction,
 * where exp2f spends three more on those. */
__device__ __forceinline__ float exp2_flush(float x) {
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

#endif
#endif
