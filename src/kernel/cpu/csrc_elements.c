//go:build blas && cgo

#include "../../../csrc/cpu/elements.c"
