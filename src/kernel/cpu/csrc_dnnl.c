//go:build blas && cgo

#include "../../../csrc/cpu/dnnl.c"
