//go:build blas && cgo

#include "../../../csrc/cpu/sparse_attention.c"
