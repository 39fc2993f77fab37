//go:build mpi

#include "../../../csrc/mpi/message.c"
