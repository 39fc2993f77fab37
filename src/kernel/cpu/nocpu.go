//go:build !(blas && cgo)

package cpu

import (
	"errors"

	"dynmo/src/kernel"
)

// New returns an error: this binary was built without the backend.
func New(threads int) (kernel.Backend, error) {
	return nil, errors.New("cpu: not built in: build with cgo, the tag blas and a BLAS, or choose the backend ref")
}

// Paths returns nil.
func Paths() []string { return nil }

// BLAS returns "".
func BLAS() string { return "" }
