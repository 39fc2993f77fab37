/* The path for x86 processors with AVX2 and FMA. Only what follows the
 * target is compiled for them; backend.c asks the processor first. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif

#include "simd/avx2.h"
#include "simd/table.c"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
