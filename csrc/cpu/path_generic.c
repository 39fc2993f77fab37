/* The path for any processor. */
#include "kernels.h"

#include "simd/generic.h"
#include "simd/table.c"
