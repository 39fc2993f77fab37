//go:build !(cuda && cgo)

package cuda

import (
	"errors"

	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// New returns an error: this binary was built without the backend.
func New(tensor.DType) (kernel.Backend, error) {
	return nil, errors.New("cuda: not built in: build with cgo and the tag cuda")
}
