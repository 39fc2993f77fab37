//go:build !mpi

package mpi

import (
	"errors"

	"dynmo/src/comm"
	"dynmo/src/tensor"
)

var errWithout = LaunchError{errors.New("mpi: this binary was built without MPI; build it with the tag mpi (build.sh does where it finds mpicc)")}

// CheckLauncher returns an error if a launcher has started this process: this binary
// was built without MPI.
func CheckLauncher() error {
	if Launched() {
		return errWithout
	}
	return nil
}

// Library returns "": this binary was built without MPI.
func Library() string { return "" }

// PMIx returns "": this binary was built without MPI.
func PMIx() string { return "" }

// Start returns an error: this binary was built without MPI.
func Start() (comm.Transport, error) { return nil, errWithout }

// Agree returns an error: this binary was built without MPI.
func Agree(what string, hash [32]byte) error { return errWithout }

// FirstRefusing returns an error: this binary was built without MPI.
func FirstRefusing(refuses bool) (int, error) { return -1, errWithout }

// Stop does nothing.
func Stop() error { return nil }

// CanLeave returns an error: this binary was built without MPI.
func CanLeave() error { return errWithout }

// Leave returns an error: this binary was built without MPI.
func Leave() error { return errWithout }

// Exit does nothing.
func Exit(status int) {}

// PingPong returns an error: this binary was built without MPI.
func PingPong(t comm.Transport, peer int, out, in tensor.Mem, messages int) (float64, error) {
	return 0, errWithout
}

// Allreduce returns an error: this binary was built without MPI.
func Allreduce(n, times int) (seconds []float64, wrong int, err error) { return nil, 0, errWithout }
