package kernel

import "dynmo/src/device"

// Product is a dense product that a training step makes: an operation and its shape.
type Product struct {
	Op
	N, C, O int
	Bias    bool // with a bias, or its gradient
}

// Tuner is a Backend whose library has several algorithms for a product. Bits follow the
// choice, so that all ranks of a run make one.
type Tuner interface {
	Backend
	// Tune measures the algorithms of products, takes the fastest of each and returns what
	// it took, as text for Choose. It needs memory for the operands of one product.
	Tune(d device.Device, s device.Stream, products []Product) (choices []byte, err error)
	// Choose has products made as a Tune chose on a backend with the same Identity. The
	// error says why they cannot be; then some may be made so and some not.
	Choose(choices []byte) error
	// Fallbacks returns how many products the library had no algorithm for.
	Fallbacks() int64
}
