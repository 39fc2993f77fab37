//go:build cgo

#include "../../../csrc/nccl/library.c"
