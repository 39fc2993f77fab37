//go:build blas && cgo

#include "../../../csrc/cpu/rounded_state.c"
