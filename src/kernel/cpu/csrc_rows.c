//go:build blas && cgo

#include "../../../csrc/cpu/rows.c"
