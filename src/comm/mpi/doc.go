// Package mpi makes ranks processes that a launcher (mpirun, srun) has
// started. With build tag mpi it stands on an MPI library: gompi carries the
// agreements at start-up, the C code of csrc/mpi all messages. Without the tag
// Start is an error.
//
// One goroutine per process makes all calls. MPI lives once per process, from
// Start to Stop.
package mpi
