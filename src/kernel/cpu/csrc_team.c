//go:build blas && cgo

#include "../../../csrc/cpu/team.c"
