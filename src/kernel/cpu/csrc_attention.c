//go:build blas && cgo

#include "../../../csrc/cpu/attention.c"
