package null

// Call describes a call to the cost model.
type Call struct {
	Name string // the method of kernel.Backend
	N    int    // tokens (rows), or the elements of an element-wise call
	C    int    // input channels; columns of logits; 1 if element-wise
	O    int    // output channels of a product; mean tokens of a sequence in attention; else 0
	NNZ  int    // kept weights of a product: C·O if dense; else 0
}

// Flops returns the floating-point operations of a call, an addition and a
// multiplication counted apart:
//
//	2·N·NNZ     a product, dense or sparse
//	2·N·O·C     attention forward: 2 products over the causal half of the scores
//	5·N·O·C     attention backward: 5 of them
//	N·C         everything else, one for each element
func (c Call) Flops() float64 {
	n := float64(c.N)
	switch {
	case c.Name == "AttentionForward":
		return 2 * n * float64(c.O) * float64(c.C)
	case c.Name == "AttentionBackward":
		return 5 * n * float64(c.O) * float64(c.C)
	case c.O > 0:
		return 2 * n * float64(c.NNZ)
	}
	return n * float64(c.C)
}

// AtRate returns the cost model of a device that reaches the same rate, in
// floating-point operations per second, in every call.
func AtRate(rate float64) func(Call) float64 {
	return func(c Call) float64 { return c.Flops() / rate }
}
