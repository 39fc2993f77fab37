//go:build blas && cgo

#include "../../../csrc/cpu/path_avx2.c"
