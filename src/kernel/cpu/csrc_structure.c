//go:build blas && cgo

#include "../../../csrc/cpu/structure.c"
