//go:build blas && cgo

#include "../../../csrc/cpu/dense.c"
