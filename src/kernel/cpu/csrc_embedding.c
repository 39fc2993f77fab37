//go:build blas && cgo

#include "../../../csrc/cpu/embedding.c"
