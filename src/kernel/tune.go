package kernel

import "dynmo/src/device"

// Product is a dense product that a training step makes: an operation and its shape.
type Product struct {
	Op
	N, C, O int  // as in Dims
	Bias    bool // the product adds a bias, or computes the gradient of a bias
}

// Tuner is a Backend whose library has several algorithms for a product. The algorithm decides the
// bits of the product. So all ranks of a run must use the same choices: one rank calls Tune, and all
// ranks call Choose with its result.
type Tuner interface {
	Backend
	// Tune measures the algorithms for every product and begins to use the fastest. It returns the
	// choices as text for Choose. d provides memory for the operands of one product at a time.
	Tune(d device.Device, s device.Stream, products []Product) (choices []byte, err error)
	// Choose makes the backend use the choices of a Tune, which ran on a backend with the same
	// Identity. After an error the backend may use some of the choices only. Products are still
	// right then, but their bits are not those of the choices.
	Choose(choices []byte) error
	// Fallbacks returns how many products the library had no algorithm for. The backend makes such
	// a product by other kernels.
	Fallbacks() int64
}
