//go:build blas && cgo

#include "../../../csrc/cpu/llama.c"
