//go:build blas && cgo

#include "../../../csrc/cpu/attention_hash.c"
