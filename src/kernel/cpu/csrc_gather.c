//go:build blas && cgo

#include "../../../csrc/cpu/gather.c"
