//go:build cgo

#include "../../../csrc/nccl/communicator.c"
