//go:build blas && cgo

#include "../../../csrc/cpu/magnitude.c"
