//go:build blas && cgo

#include "../../../csrc/cpu/softmax.c"
