//go:build !mpi

package mpi

import (
	"strings"
	"testing"
)

func TestStartWithoutMPI(t *testing.T) {
	if _, err := Start(); err == nil || !strings.Contains(err.Error(), "without MPI") {
		t.Errorf("Start: %v", err)
	}
}
