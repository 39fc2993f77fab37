//go:build mpi

#include "../../../csrc/mpi/table.c"
