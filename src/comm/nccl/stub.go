//go:build !cgo

package nccl

import (
	"errors"

	"dynmo/src/comm"
	"dynmo/src/device"
)

var errWithout = errors.New("nccl: this binary was built without cgo, which NCCL is opened with")

// Version returns an error: this binary was built without cgo.
func Version() (string, error) { return "", errWithout }

// New returns an error: this binary was built without cgo.
func New(t comm.Transport, d device.Device, compute device.Stream, ctas int) (comm.DeviceTransport, error) {
	return nil, errWithout
}

// Allreduce returns an error: this binary was built without cgo.
func Allreduce(share func([]byte) ([]byte, error), rank, ranks int, d device.Device, lengths []int, times int) ([][]float64, []int, error) {
	return nil, nil, errWithout
}

// LimitsCTAs reports that there is no library.
func LimitsCTAs() bool { return false }
