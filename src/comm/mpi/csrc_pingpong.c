//go:build mpi

#include "../../../csrc/mpi/pingpong.c"
