//go:build blas && cgo

#include "../../../csrc/cpu/gemm.c"
