/* The path for any processor. */
#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "kernels.h"

#include "simd/generic.h"
#include "simd/table.c"
