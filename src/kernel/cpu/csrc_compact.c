//go:build blas && cgo

#include "../../../csrc/cpu/compact.c"
