//go:build mpi

#include "../../../csrc/mpi/world.c"
