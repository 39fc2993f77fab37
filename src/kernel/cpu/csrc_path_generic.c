//go:build blas && cgo

#include "../../../csrc/cpu/path_generic.c"
