//go:build blas && cgo

#include "../../../csrc/cpu/path_avx512.c"
