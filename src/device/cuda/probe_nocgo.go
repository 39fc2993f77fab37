//go:build !cgo

package cuda

import "errors"

var errWithoutC = errors.New("this binary was built without cgo and cannot open libraries: build it with ./build.sh cuda")

// Kernels returns an error: this binary was built without cgo.
func Kernels(name string) (string, error) { return "", errWithoutC }

// NCCL returns an error: this binary was built without cgo.
func NCCL(name string) (int, error) { return 0, errWithoutC }

// Probe returns an error: this binary was built without cgo.
func Probe() (Driver, error) { return Driver{}, errWithoutC }
