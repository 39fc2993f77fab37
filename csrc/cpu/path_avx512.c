/* The path for x86 processors with AVX-512 F, BW, DQ and VL. Only what follows the
 * target is compiled for them; backend.c asks the processor first. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#endif

#include "simd/avx512.h"
#include "simd/table.c"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
