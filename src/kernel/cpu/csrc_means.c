//go:build blas && cgo

#include "../../../csrc/cpu/means.c"
