//go:build blas && cgo

#include "../../../csrc/cpu/tokens.c"
