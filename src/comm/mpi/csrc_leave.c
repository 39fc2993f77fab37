//go:build mpi

#include "../../../csrc/mpi/leave.c"
