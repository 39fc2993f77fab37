//go:build blas && cgo

#include "../../../csrc/cpu/sparse.c"
