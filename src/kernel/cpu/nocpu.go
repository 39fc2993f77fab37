//go:build !(blas && cgo)

package cpu

import (
	"errors"

	"dynmo/src/kernel"
)

// Built says whether this binary holds the backend.
const Built = false

// NewForTexts is New.
func NewForTexts(threads int) (kernel.Backend, error) { return New(threads) }

// NewRounded is New.
func NewRounded(threads int, _ bool) (kernel.Backend, error) { return New(threads) }

// NewBoth returns the error of New.
func NewBoth(threads int) (blas, onednn kernel.Backend, err error) {
	_, err = New(threads)
	return nil, nil, err
}

// New returns an error: this binary was built without the backend.
func New(threads int) (kernel.Backend, error) {
	return nil, errors.New("cpu: not built in: build with cgo, the tag blas and a BLAS, or choose the backend ref")
}
