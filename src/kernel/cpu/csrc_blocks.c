//go:build blas && cgo

#include "../../../csrc/cpu/blocks.c"
