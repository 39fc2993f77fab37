//go:build blas && cgo

#include "../../../csrc/cpu/backend.c"
