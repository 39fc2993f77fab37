//go:build blas && cgo

#include "../../../csrc/cpu/rounded.c"
